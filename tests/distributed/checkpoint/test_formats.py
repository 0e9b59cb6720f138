"""Checkpoints of PyTorch's, folders of safetensors, and single files."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import weft as torch
import weft.distributed.checkpoint as dcp
from tests.distributed.checkpoint.test_save_load import failing
from tests.distributed.tensor.threads import on_mesh
from weft._checkpoint.torch_pickle import pickled
from weft.distributed.checkpoint._metadata_file import StorageInfo, read_metadata, write_metadata
from weft.distributed.checkpoint.format_utils import dcp_to_safetensors, dcp_to_torch_save, main, torch_save_to_dcp
from weft.distributed.checkpoint.metadata import MetadataIndex, StorageMeta
from weft.distributed.tensor import Shard, distribute_tensor
from weft.serialization import load_file, safe_open

FILES = Path(__file__).parent / "files"
WHOLE = np.arange(15.0).reshape(5, 3)


def empty_state(mesh, placement):
    """What `record.py` has saved, without its values, on a mesh."""
    return {
        "rows": distribute_tensor(torch.zeros(5, 3), mesh, [placement]),
        "columns": distribute_tensor(torch.zeros(5, 3, dtype=torch.bfloat16), mesh, [placement]),
        "everywhere": torch.zeros(2, 3, dtype=torch.float64),
        "plain": torch.zeros(2, dtype=torch.bool),
        "number": torch.zeros((), dtype=torch.int64),
    }


def check(state):
    assert state["rows"].full_tensor().tolist() == WHOLE.tolist()
    assert state["columns"].full_tensor().float().tolist() == WHOLE.tolist()
    assert state["everywhere"].tolist() == WHOLE[:2].tolist()
    assert state["plain"].tolist() == [True, False]
    assert state["number"].item() == 7


@pytest.mark.parametrize("placement", [Shard(0), Shard(1)], ids=str)
def test_checkpoints_of_pytorch_are_read(placement):
    def program(mesh):
        state = empty_state(mesh, placement) | {
            "step": None,
            "settings": {"betas": None, "steps": [torch.zeros(1), {"deep": None}]},
        }
        dcp.load(state, checkpoint_id=FILES / "torch")
        check(state)
        assert state["step"] == 3
        assert state["settings"]["betas"] == (0.9, 0.99)
        assert state["settings"]["steps"][0].item() == 1
        assert state["settings"]["steps"][1] == {"deep": "text"}

    on_mesh((3,), program)


class Evil:
    """Its pickle calls a function that makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def with_code(place, content, evil):
    """Metadata as pickles of PyTorch's hold it, with an object in some place whose pickle runs code."""
    metadata = read_metadata(content)
    index = MetadataIndex("number", ())
    match place:
        case "itself":
            return evil
        case "planner_data":
            metadata.planner_data["step"] = evil
        case "key":
            metadata.state_dict_metadata[evil] = metadata.state_dict_metadata["step"]
        case "entry":
            metadata.state_dict_metadata["step"] = evil
        case "size":
            metadata.state_dict_metadata["number"].size = evil
        case "type":
            metadata.state_dict_metadata["number"].properties.dtype = evil
        case "place":
            metadata.storage_data[index] = evil
        case "name":
            metadata.storage_data[index].relative_path = evil
        case "storage_meta":
            metadata.storage_meta = StorageMeta(evil)
        case "version":
            metadata.version = evil
    return metadata


PLACES = ["itself", "planner_data", "key", "entry", "size", "type", "place", "name", "storage_meta", "version"]


@pytest.mark.parametrize("place", PLACES)
def test_metadata_runs_no_code(place, tmp_path):
    shutil.copytree(FILES / "torch", tmp_path / "copy")
    path = tmp_path / "copy" / ".metadata"
    content, _ = pickled(with_code(place, path, Evil(tmp_path / "made")))
    path.write_bytes(content)
    text = failing(lambda: dcp.load({"step": 1}, checkpoint_id=path.parent))
    assert "Trying to load unsupported GLOBAL posix.mkdir whose module posix is blocked" in text
    dcp.save({"x": 1}, checkpoint_id=path.parent)  # replaces what cannot be read
    assert not (tmp_path / "made").exists()


def test_items_run_no_code(tmp_path):
    shutil.copytree(FILES / "torch", tmp_path / "copy")
    content = io.BytesIO()
    torch.save(Evil(tmp_path / "made"), content)
    path = tmp_path / "copy" / ".metadata"
    metadata = read_metadata(path)
    (tmp_path / "copy" / "evil.distcp").write_bytes(content.getvalue())
    for index in (MetadataIndex("step"), MetadataIndex("number", ())):
        metadata.storage_data[index] = StorageInfo("evil.distcp", 0, len(content.getvalue()))
        write_metadata(path.parent, metadata)
        state = {"step": 1} if index.fqn == "step" else {"number": torch.zeros((), dtype=torch.int64)}
        assert "posix" in failing(lambda state=state: dcp.load(state, checkpoint_id=path.parent))
        metadata.storage_data[index] = StorageInfo("__0_0.distcp", 0, 0)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [{"no": "metadata"}, 5, None, []], ids=str)
def test_pickles_that_hold_something_else(content, tmp_path):
    (tmp_path / ".metadata").write_bytes(pickle.dumps(content))
    text = failing(lambda: dcp.load({"x": 1}, checkpoint_id=tmp_path))
    assert "its pickle holds no metadata of a distributed checkpoint" in text


def test_damaged_metadata_of_pytorch(tmp_path):
    content = (FILES / "torch" / ".metadata").read_bytes()
    shutil.copytree(FILES / "torch", tmp_path / "copy")
    path = tmp_path / "copy" / ".metadata"
    path.write_bytes(content.replace(b"__1_0.distcp", b"../0.distcp\x20"))
    assert "its file '../0.distcp ' is none of its folder" in failing(lambda: dcp.load({}, checkpoint_id=path.parent))
    path.write_bytes(content[: len(content) // 2])
    assert "its pickle is damaged" in failing(lambda: dcp.load({}, checkpoint_id=path.parent))
    path.write_bytes(content)
    (path.parent / "__1_0.distcp").write_bytes(b"short")
    state = {"everywhere": torch.zeros(2, 3), "plain": torch.zeros(2), "number": torch.zeros(()), "step": 0}
    assert "it is truncated" in failing(lambda: dcp.load(state, checkpoint_id=path.parent))


def test_a_checkpoint_of_pytorch_is_replaced(tmp_path):
    shutil.copytree(FILES / "torch", tmp_path / "copy")
    dcp.save({"x": 1}, checkpoint_id=tmp_path / "copy")
    assert sorted(file.name for file in (tmp_path / "copy").iterdir()) == [".metadata", "__0_1.distcp"]


@pytest.mark.parametrize("version", ["earlier_1", "earlier_2"])
@pytest.mark.parametrize("placement", [Shard(0), Shard(1)], ids=str)
def test_checkpoints_of_earlier_versions_are_read_and_replaced(placement, version, tmp_path):
    def program(mesh):
        state = empty_state(mesh, placement) | {
            "step": None,
            "settings": {"betas": None, "steps": [torch.zeros(1), {}]},
        }
        dcp.load(state, checkpoint_id=FILES / version)
        check(state)
        assert state["step"] == 3
        assert state["settings"]["betas"] == (0.9, 0.99)
        assert state["settings"]["steps"][0].item() == 1

    on_mesh((3,), program)
    shutil.copytree(FILES / version, tmp_path / "copy")
    dcp.save({"x": 1}, checkpoint_id=tmp_path / "copy")
    assert sorted(file.name for file in (tmp_path / "copy").iterdir()) == [".metadata", "__0_0.distcp"]


def test_folders_of_safetensors_are_read():
    def program(mesh):
        state = empty_state(mesh, Shard(0))
        dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(FILES / "safetensors"))
        check(state)

    on_mesh((2,), program)


def save_safetensors(state, folder):
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(folder, save_distributed=True))


def test_ones_own_safetensors_are_read_with_and_without_the_metadata(tmp_path):
    def program(mesh):
        x = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
        save_safetensors({"x": x, "y": torch.ones(())}, tmp_path)

    on_mesh((2,), program)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [".metadata", "__0_0.safetensors", "__1_0.safetensors"]
    with safe_open(tmp_path / names[1]) as file:
        assert '"x": {"saved_offsets": [0]}' in file.metadata()["DCP_SHARDING_INFO"]
    state = {"x": torch.zeros(5), "y": torch.zeros(())}
    dcp.load(state, checkpoint_id=tmp_path)
    (tmp_path / ".metadata").unlink()
    again = {"x": torch.zeros(5), "y": torch.zeros(())}
    dcp.load(again, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    for read in (state, again):
        assert read["x"].tolist() == [0, 1, 2, 3, 4]
        assert read["y"].item() == 1
    text = failing(lambda: save_safetensors({"z": torch.ones(2, dtype=torch.complex128)}, tmp_path / "z"))
    assert "cannot save 'z' as safetensors: the format has no complex128" in text


def test_folders_of_safetensors_that_do_not_fit_together(tmp_path):
    def text():
        return failing(lambda: dcp.load({}, storage_reader=dcp.HuggingFaceStorageReader(tmp_path)))

    assert "there are no files *.safetensors in it" in text()
    torch.serialization.save_file({"x": torch.ones(2)}, tmp_path / "a.safetensors")
    torch.serialization.save_file({"x": torch.ones(2, 2)}, tmp_path / "b.safetensors")
    assert "b.safetensors: its tensor 'x' is another one than in the files before" in text()
    (tmp_path / "b.safetensors").write_bytes(b"broken")
    assert "b.safetensors: it is truncated: its header is not all there" in text()


def test_a_checkpoint_becomes_one_file_and_a_file_a_checkpoint(tmp_path, capsys):
    def program(mesh):
        x = distribute_tensor(torch.arange(6.0).reshape(3, 2), mesh, [Shard(0)])
        dcp.save({"model": {"x": x, "list": [torch.ones(1)]}, "step": 4}, checkpoint_id=tmp_path / "checkpoint")

    on_mesh((2,), program)
    dcp_to_torch_save(tmp_path / "checkpoint", tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt")
    assert whole["model"]["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert whole["model"]["list"][0].tolist() == [1]
    assert whole["step"] == 4

    torch_save_to_dcp(tmp_path / "whole.pt", tmp_path / "again")
    state = {"model": {"x": torch.zeros(3, 2)}, "step": None}
    dcp.load(state, checkpoint_id=tmp_path / "again")
    assert state["model"]["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert state["step"] == 4

    dcp_to_safetensors(tmp_path / "checkpoint", tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    assert sorted(tensors) == ["model.list.0", "model.x"]
    assert tensors["model.x"].tolist() == [[0, 1], [2, 3], [4, 5]]

    assert main(["dcp_to_safetensors", str(FILES / "torch"), str(tmp_path / "other.safetensors")]) == 0
    assert load_file(tmp_path / "other.safetensors")["rows"].tolist() == WHOLE.tolist()
    assert main(["dcp_to_torch", str(tmp_path / "none"), str(tmp_path / "x.pt")]) == 1
    assert capsys.readouterr().err.endswith("none: there is no such folder\n")
    torch.save([1], tmp_path / "list.pt")
    assert main(["torch_to_dcp", str(tmp_path / "list.pt"), str(tmp_path / "y")]) == 1
    assert capsys.readouterr().err.endswith("list.pt holds a list, and a checkpoint is made of a dict\n")
