"""State dicts saved and loaded: what may be in them, what is on disk, and what errors say and leave."""

from __future__ import annotations

import io
import os
import stat
from pickletools import genops

import numpy as np
import pytest

import weft as torch
import weft.distributed as dist
import weft.distributed.checkpoint as dcp
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.checkpoint.metadata import MetadataIndex
from weft.distributed.checkpoint.stateful import Stateful
from weft.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from weft.errors import CheckpointException


def in_ranks(count, program):
    """The results of `program(rank)` in ranks of one job."""

    def body(rank):
        dist.init_process_group("threads")
        return program(rank)

    return dist.run_threads(body, nprocs=count)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def failing(action):
    """The text of the error that `action` fails with on this rank."""
    with pytest.raises(CheckpointException) as raised:
        action()
    return str(raised.value)


def test_what_may_be_in_a_state_dict(tmp_path):
    saved = {
        "step": 3,
        "rate": float("inf"),
        "name": "run",
        "shape": torch.Size((2, 3)),
        "nothing": None,
        "numbers": [1, 2, (3, "four")],
        "array": np.arange(3),
        "nested": {"list": [torch.ones(2), {"deep": torch.zeros(())}], 7: {"x.y": 5}},
        "kind": torch.bfloat16,
    }
    dcp.save(saved, checkpoint_id=tmp_path)
    state = dict.fromkeys(saved) | {"nested": {"list": [torch.zeros(2), {"deep": torch.ones(())}], 7: {"x.y": None}}}
    ones = state["nested"]["list"][0]
    dcp.load(state, checkpoint_id=tmp_path)
    assert state.pop("array").tolist() == saved.pop("array").tolist()
    assert state["nested"]["list"][0] is ones
    assert ones.tolist() == [1, 1]
    assert state["nested"].pop("list")[1]["deep"].item() == 0
    del saved["nested"]["list"]
    assert state == saved


def test_of_objects_rank_0s_are_saved_and_each_ranks_own_keys(tmp_path):
    def program(rank):
        dcp.save({"common": rank, f"own {rank}": rank * 10}, checkpoint_id=tmp_path)
        state = {"common": None, f"own {rank}": None}
        dcp.load(state, checkpoint_id=tmp_path)
        return state

    assert in_ranks(2, program) == [{"common": 0, "own 0": 0}, {"common": 0, "own 1": 10}]


def test_objects_with_a_state_give_and_take_it(tmp_path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert isinstance(model, Stateful)
    model(torch.ones(2)).backward()
    optimizer.step()
    schedule.step()
    dcp.save({"model": model, "optimizer": optimizer, "schedule": schedule}, checkpoint_id=tmp_path)

    other = nn.Linear(2, 1)
    again = torch.optim.SGD(other.parameters(), lr=0.7, momentum=0.9)
    other(torch.ones(2)).backward()
    again.step()
    following = torch.optim.lr_scheduler.StepLR(again, 1)
    dcp.load({"model": other, "optimizer": again, "schedule": following}, checkpoint_id=tmp_path)
    assert torch.equal(other.weight, model.weight)
    assert again.param_groups[0]["lr"] == pytest.approx(0.01)
    assert torch.equal(again.state[other.weight]["momentum_buffer"], optimizer.state[model.weight]["momentum_buffer"])
    assert following.state_dict() == schedule.state_dict()


def test_each_rank_writes_one_file_of_files(tmp_path):
    def program(mesh):
        x = distribute_tensor(torch.arange(5), mesh, [Shard(0)])
        return dcp.save({"x": x, "note": "hello"}, checkpoint_id=tmp_path)

    metadata = on_mesh((2,), program)[1]
    assert names(tmp_path) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    for index, expected in ((MetadataIndex("x", (3,)), [3, 4]), (MetadataIndex("note"), "hello")):
        place = metadata.storage_data[index]
        content = (tmp_path / place.relative_path).read_bytes()[place.offset : place.offset + place.length]
        value = torch.load(io.BytesIO(content))
        assert (value.tolist() if isinstance(value, torch.Tensor) else value) == expected
        assert place.offset % 64 == 0
    assert stat.S_IMODE((tmp_path / "__0_0.distcp").stat().st_mode) == 0o666 & ~umask()


@pytest.mark.parametrize(("options", "files"), [({"thread_count": 3}, 3), ({"single_file_per_rank": False}, 6)])
def test_a_rank_writes_several_files(tmp_path, options, files):
    state = {f"x{number}": torch.full((number,), float(number)) for number in range(5)} | {"step": 3}
    for save in range(2):
        metadata = dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path, **options))
        first = save * files
        expected = {f"__0_{first + number}.distcp" for number in range(files)}
        assert {place.relative_path for place in metadata.storage_data.values()} == expected
        assert {*names(tmp_path)} == {".metadata", *expected}
    read = {f"x{number}": torch.zeros(number) for number in range(5)} | {"step": 0}
    dcp.load(read, checkpoint_id=tmp_path)
    assert all(torch.equal(read[key], state[key]) for key in state if key != "step")
    assert read["step"] == 3


def test_a_failure_in_one_of_several_files_leaves_none(tmp_path):
    class Planner(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item):
            if write_item.index.fqn == "x2":
                raise OSError("No space left on device")
            return super().resolve_data(write_item)

    state = {f"x{number}": torch.ones(number) for number in range(1, 5)}
    writer = dcp.FileSystemWriter(tmp_path, thread_count=4)
    assert "No space left on device" in failing(lambda: dcp.save(state, storage_writer=writer, planner=Planner()))
    assert names(tmp_path) == []
    with pytest.raises(ValueError, match="thread_count is 0, and a rank writes at least one file"):
        dcp.FileSystemWriter(tmp_path, thread_count=0)


def test_only_elements_are_saved_of_parameters_views_and_subclasses(tmp_path):
    class Own(torch.Tensor):
        pass

    base = torch.arange(1000.0)
    parameter = nn.Parameter(torch.ones(2))
    parameter.note = "not saved"
    state = {"view": base[10:12], "strided": base[::500], "parameter": parameter, "own": torch.ones(1).as_subclass(Own)}
    state["wide"] = torch.ones(1).expand(3)
    metadata = dcp.save(state, checkpoint_id=tmp_path)
    assert metadata.state_dict_metadata["parameter"].properties.requires_grad
    for index, place in metadata.storage_data.items():
        assert place.length < 2000
        content = (tmp_path / place.relative_path).read_bytes()[place.offset : place.offset + place.length]
        value = torch.load(io.BytesIO(content))
        assert type(value) is torch.Tensor
        assert not value.requires_grad
        assert not vars(value)
        assert value.tolist() == state[index.fqn].tolist()


def test_the_metadata_is_pickled_under_the_names_that_pytorch_has(tmp_path):
    dcp.save({"x": torch.ones(2), "step": 1}, checkpoint_id=tmp_path)
    globals_ = [arg for opcode, arg, _ in genops((tmp_path / ".metadata").read_bytes()) if opcode.name == "GLOBAL"]
    home = "torch.distributed.checkpoint"
    assert sorted({*globals_}) == [
        "torch Size",
        "torch float32",
        *(f"{home}.{name}" for name in ("filesystem _StorageInfo", "metadata BytesStorageMetadata")),
        *(f"{home}.metadata {name}" for name in ("ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta")),
        *(f"{home}.metadata {name}" for name in ("TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING")),
        "torch.serialization _get_layout",
    ]


def test_planner_data_with_tensors_is_refused(tmp_path):
    class Planner(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans):
            plans, metadata = super().create_global_plan(all_plans)
            metadata.planner_data = {"x": torch.ones(2)}
            return plans, metadata

    text = failing(lambda: dcp.save({"x": 1}, checkpoint_id=tmp_path, planner=Planner()))
    assert "cannot save planner_data with tensors in it: put them into the state dict" in text
    assert names(tmp_path) == []


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_new_checkpoint_replaces_the_earlier_one(tmp_path):
    for ranks, value in ((3, 1.0), (2, 2.0)):

        def program(rank, value=value):
            dcp.save({f"x{rank}": torch.tensor(value)}, checkpoint_id=tmp_path)

        in_ranks(ranks, program)
    (tmp_path / "notes.txt").write_text("kept")
    (tmp_path / ".__1_7.distcp.89abcdef.part").write_bytes(b"of a killed process")
    (tmp_path / ".rank0-01234567.safetensors.89abcdef.part").write_bytes(b"of one of an earlier version")
    dcp.save({"x": torch.tensor(3.0)}, checkpoint_id=tmp_path)
    assert names(tmp_path) == [".metadata", "__0_8.distcp", "notes.txt"]
    state = {"x": torch.zeros(())}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["x"].item() == 3
    writer = dcp.FileSystemWriter(tmp_path, overwrite=False)
    assert "Checkpoint already exists and self.overwrite=False" in failing(lambda: dcp.save({}, storage_writer=writer))


def test_a_failed_save_leaves_the_earlier_checkpoint(tmp_path):
    dcp.save({"x": 1}, checkpoint_id=tmp_path)
    before = names(tmp_path)

    def program(rank):
        bad = {"x": torch.ones(2), f"bad {rank}": object() if rank else "good"}
        text = failing(lambda: dcp.save(bad, checkpoint_id=tmp_path))
        assert text.startswith(
            "the checkpoint could not be written, by an error on rank 1: weft.errors.PicklingError: cannot save "
        )
        assert "cannot save obj: it needs builtins.object" in text

    in_ranks(2, program)
    assert names(tmp_path) == before
    state = {"x": 0}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state == {"x": 1}


def test_an_error_of_one_rank_is_raised_on_all(tmp_path):
    dcp.save({"x": torch.ones(4, 2), "note": "hi"}, checkpoint_id=tmp_path)
    cases = {
        "Missing key in checkpoint state_dict: y. It has 2 others": {"y": torch.ones(2)},
        r"Size mismatch between saved torch.Size([4, 2]) and current: torch.Size([2, 4]) for x": {
            "x": torch.ones(2, 4)
        },
        "Invalid checkpoint metadata for x, expected BytesStorageMetadata but found": {"x": 5},
    }

    def program(rank):
        for text, wrong in cases.items():
            good = torch.zeros(4, 2)
            error = failing(
                lambda wrong=wrong, good=good: dcp.load(wrong if rank else {"x": good}, checkpoint_id=tmp_path)
            )
            assert error.startswith("the checkpoint cannot be loaded, by an error on rank 1: ")
            assert text in error
            assert not good.any()

    in_ranks(2, program)


def test_nothing_is_loaded_anywhere_if_one_rank_cannot_read(tmp_path):
    def program(rank):
        x = torch.ones(3) if rank else torch.ones(2)
        dcp.save({f"x{rank}": x}, checkpoint_id=tmp_path)
        if rank:
            file = next(tmp_path.glob("__1_*"))
            os.truncate(file, file.stat().st_size - 4)
        dist.barrier()
        state = {f"x{rank}": torch.zeros_like(x)}
        text = failing(lambda: dcp.load(state, checkpoint_id=tmp_path))
        assert text.startswith("the checkpoint could not be read, by an error on rank 1: ")
        assert "it is truncated, 'x1' is at the bytes" in text
        assert not state[f"x{rank}"].any()

    in_ranks(2, program)


def test_folders_that_hold_no_checkpoint(tmp_path):
    def text(folder, state=None):
        return failing(lambda: dcp.load({"x": 1} if state is None else state, checkpoint_id=folder))

    assert "no such folder" in text(tmp_path / "none")
    assert "it has no '.metadata', so there is no checkpoint in it" in text(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "give storage_reader=HuggingFaceStorageReader(path)" in text(tmp_path)
    dcp.save({"x": 1, "w": torch.ones(2)}, checkpoint_id=tmp_path)
    (tmp_path / ".metadata").rename(tmp_path / "hidden")
    assert "its checkpoint is incomplete; files of ranks are there, but not '.metadata'" in text(tmp_path)
    torch.save({"x": 1}, tmp_path / ".metadata")
    assert "it is no metadata of a distributed checkpoint" in text(tmp_path)
    (tmp_path / "hidden").rename(tmp_path / ".metadata")
    next(tmp_path.glob("__0_*")).unlink()
    assert "No such file" in text(tmp_path)
    assert "which has 'w'" in text(tmp_path, {"w": torch.zeros(2)})


def test_arguments_that_make_no_sense():
    with pytest.raises(
        RuntimeError, match=r"^`checkpoint_id` must be specified if storage_reader/storage_writer is No"
    ):
        dcp.save({})
    with pytest.raises(
        RuntimeError, match="Cannot detect which StorageReader or StorageWriter to use for 's3://bucket'"
    ):
        dcp.load({}, checkpoint_id="s3://bucket")


def test_state_dicts_that_cannot_be_saved(tmp_path):
    def program(mesh):
        pending = DTensor.from_local(torch.ones(2), mesh, [Partial()])
        text = failing(lambda: dcp.save({"grad": pending}, checkpoint_id=tmp_path))
        assert "grad has the placements ['P(sum)'], so sums are pending" in text
        text = failing(lambda: dcp.save({"layer": nn.LazyLinear(2)}, checkpoint_id=tmp_path))
        assert "layer.weight has no size yet: call the module once" in text
        text = failing(lambda: dcp.save({"x": torch.ones(mesh.get_rank() + 1)}, checkpoint_id=tmp_path))
        assert "key:x is not the same on all ranks: a tensor of size [1] and type torch.float32 on one, a" in text
        text = failing(lambda: dcp.save({"a.b": 1, "a": {"b": 2}}, checkpoint_id=tmp_path))
        assert "duplicated flatten key a.b: the state dict has it at ('a.b',) and ('a', 'b')" in text
        own = DTensor.from_local(torch.ones(2), mesh, [Shard(0)])
        lonely = {"x": own} if mesh.get_rank() else {}
        text = failing(lambda: dcp.save(lonely, checkpoint_id=tmp_path))
        assert "key:x invalid fill tensor-volume: 4 chunks-volume: 2" in text

    on_mesh((2,), program)
    assert not list(tmp_path.iterdir())


def test_keys_that_only_one_side_has(tmp_path):
    dcp.save({"x": 1, "y": 2}, checkpoint_id=tmp_path)
    state = {"x": 0, "z": 5}
    dcp.load(state, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert state == {"x": 1, "z": 5}


def test_errors_that_cannot_be_sent_are_still_told(tmp_path):
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    class Failing:
        def state_dict(self):
            raise Odd(1, 2)

        def load_state_dict(self, state):
            raise AssertionError

    def program(rank):
        return failing(lambda: dcp.save({"x": Failing() if rank else 1}, checkpoint_id=tmp_path))

    for text in in_ranks(2, program):
        assert text.endswith("CheckpointError: Odd: 1 and 2")


def test_ranks_of_a_group_save_alone(tmp_path):
    def program(rank):
        groups = [dist.new_group(members) for members in ([0, 1], [2, 3])]
        own = groups[rank // 2]
        folder = tmp_path / str(rank // 2)
        dcp.save({f"x{rank}": rank}, checkpoint_id=folder, process_group=own)
        state = {f"x{rank}": None, f"x{rank ^ 1}": None}
        dcp.load(state, checkpoint_id=folder, process_group=own)
        dcp.save({"alone": rank}, checkpoint_id=tmp_path / f"alone {rank}", no_dist=True)
        return list(state.values())

    assert in_ranks(4, program) == [[0, 1], [1, 0], [2, 3], [3, 2]]
    assert len(names(tmp_path)) == 6


def test_a_rank_that_has_not_joined_its_job_is_told_that_it_saves_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="one of WORLD_SIZE=2 of a job, but there is no process group"):
        dcp.save({"x": 1}, checkpoint_id=tmp_path)
    dcp.save({"x": 2}, checkpoint_id=tmp_path, no_dist=True)


def test_deprecated_names(tmp_path):
    state = {"x": torch.zeros(2)}
    with pytest.warns(FutureWarning, match="Please use `save` instead"):
        dcp.save_state_dict({"x": torch.ones(2)}, dcp.FileSystemWriter(tmp_path))
    with pytest.warns(FutureWarning, match="Please use `load` instead"):
        dcp.load_state_dict(state, dcp.FileSystemReader(tmp_path))
    assert state["x"].tolist() == [1, 1]


def test_a_storage_may_be_the_second_argument(tmp_path):
    state = {"a": torch.ones(2)}
    with pytest.warns(UserWarning, match=r"^The argument order of save has been changed"):
        dcp.save(state, dcp.FileSystemWriter(tmp_path))
    state["a"].zero_()
    with pytest.warns(UserWarning, match=r"^The argument order of load has been changed"):
        dcp.load(state, dcp.FileSystemReader(tmp_path))
    assert state["a"].tolist() == [1, 1]
    with pytest.raises(AssertionError, match=r"^save\(\) has got storage_writer twice"):
        dcp.save(state, dcp.FileSystemWriter(tmp_path), storage_writer=dcp.FileSystemWriter(tmp_path))
