"""Checkpoints made to do harm: nothing is loaded that is not there, and effort grows with the files."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
import weft.distributed.checkpoint as dcp
from tests.mutating import damage, mutated_often
from weft._base.size import Size
from weft.distributed.checkpoint import metadata
from weft.distributed.checkpoint._chunks import make_up
from weft.distributed.checkpoint._metadata_file import StorageInfo, read_metadata, write_metadata
from weft.distributed.checkpoint.format_utils import dcp_to_torch_save
from weft.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from weft.errors import CheckpointError

FILES = Path(__file__).parent / "files"
SIZE = [4, 6]


@pytest.fixture
def folder(tmp_path):
    dcp.save({"x": torch.ones(SIZE), "y": torch.ones(2), "steps": 3}, checkpoint_id=tmp_path / "c")
    return tmp_path / "c"


@pytest.fixture
def former(tmp_path):
    """What an earlier version has saved, with metadata of its own."""
    shutil.copytree(FILES / "earlier_2", tmp_path / "c")
    return tmp_path / "c"


def change(folder, edit):
    """Let `edit` change what the metadata says."""
    metadata = read_metadata(folder / ".metadata")
    edit(metadata)
    write_metadata(folder, metadata)


def change_former(folder, edit):
    contents = torch.load(folder / ".metadata")
    edit(contents)
    torch.save(contents, folder / ".metadata")


def refused(folder, text):
    for load in (lambda: dcp.load({"x": torch.zeros(SIZE)}, checkpoint_id=folder), lambda: all_of(folder)):
        with pytest.raises((dcp.CheckpointException, CheckpointError), match=re.escape(text)):
            load()


def all_of(folder):
    target = folder.parent / "whole.pt"
    dcp_to_torch_save(folder, target)
    return torch.load(target)


def with_chunks(chunks):
    def edit(metadata):
        place = metadata.storage_data.pop(MetadataIndex("x", (0, 0)))
        metadata.state_dict_metadata["x"].chunks[:] = [ChunkStorageMetadata(Size(o), Size(s)) for o, s in chunks]
        # Each in bytes of its own, of a file that is large enough.
        for number, (offsets, _) in enumerate(chunks):
            metadata.storage_data[MetadataIndex("x", offsets)] = StorageInfo("large", 10_000 * number, place.length)

    return edit


def with_place(key, **fields):
    """Change where the first chunk of a tensor is."""

    def edit(metadata):
        index = next(index for index in metadata.storage_data if index.fqn == key)
        metadata.storage_data[index] = replace(metadata.storage_data[index], **fields)

    return edit


WHOLE = ((0, 0), (4, 6))


@pytest.mark.parametrize(
    "chunks",
    [
        [WHOLE, WHOLE],
        [WHOLE] * 400,
        [],
        [((0, 0), (4, 5))],
        [((1, 0), (4, 6))],
        [((0, 0), (2, 6)), ((3, 0), (2, 6))],
        [((0, 0), (2, 6)), ((1, 0), (2, 6))],
        [((0, 0), (4, 3)), ((0, 3), (2, 3)), ((0, 3), (2, 3))],
    ],
    ids=["twice", "400 times", "none", "less", "beyond", "a gap and beyond", "overlap and less", "twice a quarter"],
)
def test_chunks_that_do_not_make_up_their_tensor(folder, chunks):
    change(folder, with_chunks(chunks))
    refused(
        folder,
        f"the {len(chunks)} chunks of its tensor 'x' of size {SIZE} leave out some elements, have some twice, or go "
        "beyond it",
    )


@pytest.mark.parametrize("name", ["../c/__0_0.distcp", "/etc/passwd", "", ".", "..", None, 3])
def test_a_file_that_is_not_in_the_folder(folder, name):
    change(folder, with_place("x", relative_path=name))
    refused(folder, f"its file {name!r} is none of its folder")


@pytest.mark.parametrize("start", [-96, 1.0, None, True])
def test_bytes_that_there_are_not(folder, start):
    change(folder, with_place("x", offset=start))
    refused(folder, f"bytes at {start} of '__0_0.distcp'")


@pytest.mark.parametrize("length", [-96, 1.0, None, True])
def test_a_length_that_is_none(folder, length):
    change(folder, with_place("x", length=length))
    refused(folder, f"'x' has {length} bytes at ")


def test_fewer_bytes_than_elements(folder):
    change(folder, with_place("x", length=4 * 6 - 1))
    refused(folder, "its tensor 'x' has a chunk of 23 bytes of sizes [4, 6]")


def test_another_tensor_than_the_metadata_says(folder):
    def edit(metadata):
        x, y = (MetadataIndex("x", (0, 0)), MetadataIndex("y", (0,)))
        metadata.storage_data[x], metadata.storage_data[y] = metadata.storage_data[y], metadata.storage_data[x]

    change(folder, edit)
    refused(folder, "a tensor of size [2] instead of a tensor of [4, 6]")


def test_an_object_in_the_place_of_a_tensor(folder):
    def edit(metadata):
        x, steps = (MetadataIndex("x", (0, 0)), MetadataIndex("steps"))
        metadata.storage_data[x], metadata.storage_data[steps] = metadata.storage_data[steps], metadata.storage_data[x]

    change(folder, edit)
    refused(folder, "it is a int instead of a tensor of [4, 6]")


def test_many_tensors_in_the_same_bytes(folder):
    """Each would cost as much as the whole file."""

    def edit(metadata):
        place = metadata.storage_data[MetadataIndex("x", (0, 0))]
        for number in range(1000):
            metadata.state_dict_metadata[f"x{number}"] = metadata.state_dict_metadata["x"]
            metadata.storage_data[MetadataIndex(f"x{number}", (0, 0))] = place

    change(folder, edit)
    refused(folder, "are in the same bytes of '__0_0.distcp'")


def test_a_tensor_that_is_larger_than_its_file(folder):
    def edit(metadata):
        metadata.state_dict_metadata["x"].size = Size([1 << 20, 1 << 20])
        metadata.state_dict_metadata["x"].chunks[0].sizes = Size([1 << 20, 1 << 20])

    change(folder, edit)
    refused(folder, "of sizes [1048576, 1048576]")
    change(folder, with_place("x", length=1 << 40))
    with pytest.raises((dcp.CheckpointException, CheckpointError, MemoryError)):
        all_of(folder)


def test_a_damaged_chunk(folder):
    """Checksums are verified wherever a chunk is read whole."""
    path = folder / "__0_0.distcp"
    path.write_bytes(path.read_bytes().replace(np.ones(SIZE, np.float32).tobytes(), np.zeros(SIZE, "f").tobytes()))
    refused(folder, "__0_0.distcp, 'x' in it: the member 'archive/data/0' is damaged (Bad CRC-32")


@pytest.mark.parametrize("number", [-1, 2, True, 0.0, "0", None])
def test_a_file_that_there_is_not_in_the_former_metadata(former, number):
    def edit(contents):
        dtype, size, [(offsets, sizes, _, start, length)] = contents["tensors"]["plain"]
        contents["tensors"]["plain"] = dtype, size, [(offsets, sizes, number, start, length)]

    change_former(former, edit)
    refused(former, f"it refers to file {number!r}, and has 2")


@pytest.mark.parametrize("length", [1, 3, -2, None])
def test_another_length_than_that_of_the_elements_in_the_former_format(former, length):
    def edit(contents):
        dtype, size, [(offsets, sizes, number, start, _)] = contents["tensors"]["plain"]
        contents["tensors"]["plain"] = dtype, size, [(offsets, sizes, number, start, length)]

    change_former(former, edit)
    refused(former, f"{length} bytes ")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_what_is_no_file_of_the_folder(folder, kind):
    (file,) = folder.glob("__0_*")
    match kind:
        case "link":
            file.rename(folder.parent / "elsewhere")
            file.symlink_to("../elsewhere")
            text = "it is a link out of the folder"
        case "pipe":
            file.unlink()
            os.mkfifo(file)
            text = "it is no regular file"
        case "folder":
            file.unlink()
            file.mkdir()
            text = "Is a directory"
        case "device":
            file.unlink()
            file.symlink_to("/dev/zero")
            text = "it is a link out of the folder"
    refused(folder, text)


@pytest.mark.parametrize("chunks", [[WHOLE, ((0, 0), (0, 6))], [((0, 0), (0, 6)), WHOLE]], ids=["after", "before"])
def test_an_empty_chunk_where_another_one_begins(folder, chunks):
    change(folder, with_chunks(chunks))
    refused(folder, "its tensor 'x' has an empty chunk where another one begins; save it again")


def test_empty_chunks_behind_the_others_may_be(folder):
    def edit(metadata):
        metadata.state_dict_metadata["x"].chunks += [ChunkStorageMetadata(Size([4, 0]), Size([0, 6]))] * 2
        metadata.storage_data[MetadataIndex("x", (4, 0))] = StorageInfo("__0_0.distcp", 0, 0)

    change(folder, edit)
    assert all_of(folder)["x"].tolist() == np.ones(SIZE).tolist()


def test_a_link_within_the_folder_may_be(folder):
    (file,) = folder.glob("__0_*")
    file.rename(folder / "renamed")
    file.symlink_to("renamed")
    assert all_of(folder)["x"].tolist() == np.ones(SIZE).tolist()


boxes = st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=5)


@given(boxes, st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_boxes_make_up_another_one_if_each_place_is_in_one(boxes, size):
    counts = np.zeros((8, 8), int)
    for row, column, height, width in boxes:
        counts[row : row + height, column : column + width] += 1
    counts[: size[0], : size[1]] -= 1
    chunks = [ChunkStorageMetadata(Size([r, c]), Size([h, w])) for r, c, h, w in boxes]
    assert make_up(chunks, size) == (not counts.any())


def halves(box, cuts):
    """A box, cut into two again and again."""
    for dim, at in cuts:
        start, length = box[dim]
        if 0 < at < length:
            rest = halves([*box[:dim], (start + at, length - at), *box[dim + 1 :]], cuts[1:])
            return [*halves([*box[:dim], (start, at), *box[dim + 1 :]], cuts[1:]), *rest]
        cuts = cuts[1:]
    return [box]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), max_size=6), st.data())
def test_parts_make_up_the_whole_and_without_one_they_do_not(cuts, data):
    parts = halves([(0, 5), (0, 6), (0, 7)], cuts)
    chunks = [ChunkStorageMetadata(Size([s for s, _ in box]), Size([n for _, n in box])) for box in parts]
    assert make_up(chunks, (5, 6, 7))
    del chunks[data.draw(st.integers(0, len(chunks) - 1))]
    assert not make_up(chunks, (5, 6, 7))


def test_many_chunks_take_linear_time():
    count = 20_000  # pairs of these would take minutes
    chunks = [ChunkStorageMetadata(Size([0, at]), Size([count, 1])) for at in range(count)]
    assert make_up(chunks, (count, count))


def test_a_save_that_fails_leaves_no_folder(tmp_path):
    class Planner(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item):
            raise OSError("No space left on device")

    (tmp_path / "is there").mkdir()
    for folder in ("new", "new/deep/er", "is there", "is there/new"):
        with pytest.raises(dcp.CheckpointException, match="No space left on device"):
            dcp.save({"x": torch.ones(2)}, checkpoint_id=tmp_path / folder, planner=Planner())
        assert os.listdir(tmp_path) == ["is there"]
        assert os.listdir(tmp_path / "is there") == []


def parts_of(x):
    """Metadata as nested dicts and lists: of an object, its class and its fields."""
    if type(x) in CLASSES:
        return {"class": type(x).__name__} | parts_of(vars(x))
    if isinstance(x, dict):
        return {key: parts_of(value) for key, value in x.items()}
    return [parts_of(part) for part in x] if type(x) is list else x


def built(x):
    """What `parts_of` has taken apart, be it changed."""
    if isinstance(x, dict):
        fields = {key: built(value) for key, value in x.items()}
        if fields.get("class") not in NAMED:
            return fields
        kind = NAMED[fields.pop("class")]
        obj = kind.__new__(kind)
        vars(obj).update(fields)
        return obj
    return [built(part) for part in x] if type(x) is list else x


CLASSES = (
    metadata.Metadata,
    metadata.TensorStorageMetadata,
    metadata.BytesStorageMetadata,
    metadata.ChunkStorageMetadata,
    metadata.TensorProperties,
    metadata.MetadataIndex,
    metadata.StorageMeta,
    StorageInfo,
)
NAMED = {kind.__name__: kind for kind in CLASSES}


def fuzz(folder, original, seed):
    """Metadata that says anything is read, or refused with the documented errors, quickly."""
    try:
        write_metadata(folder, built(mutated_often(original, random.Random(seed))))
    except (CheckpointError, LookupError, TypeError, ValueError, AttributeError):
        return False  # it cannot be built, or written
    state = {"x": torch.zeros(SIZE), "y": torch.zeros(2), "steps": 0}
    start = time.process_time()
    for load in (lambda: dcp.load(state, checkpoint_id=folder), lambda: all_of(folder)):
        with suppress(dcp.CheckpointException, CheckpointError):
            load()
    assert time.process_time() - start < 2, seed
    return True


@pytest.mark.parametrize("seeds", [range(200), pytest.param(range(200, 30_000), marks=pytest.mark.soak)], ids=len)
def test_metadata_that_says_anything(folder, seeds):
    original = parts_of(read_metadata(folder / ".metadata"))
    assert built(original) == read_metadata(folder / ".metadata")
    assert sum(fuzz(folder, original, seed) for seed in seeds) > len(seeds) / 3


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 30_000), marks=pytest.mark.soak)], ids=len)
def test_former_metadata_that_says_anything(former, seeds):
    original = torch.load(former / ".metadata")
    for seed in seeds:
        try:
            torch.save(mutated_often(original, random.Random(seed)), former / ".metadata")
        except CheckpointError:
            continue  # it cannot be written
        start = time.process_time()
        with suppress(dcp.CheckpointException, CheckpointError):
            all_of(former)
        assert time.process_time() - start < 2, seed


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 30_000), marks=pytest.mark.soak)], ids=len)
def test_damaged_metadata_of_pytorch(seeds, tmp_path):
    shutil.copytree(FILES / "torch", tmp_path / "c")
    content = (tmp_path / "c" / ".metadata").read_bytes()
    for seed in seeds:
        (tmp_path / "c" / ".metadata").write_bytes(damage(content, random.Random(seed)))
        start = time.process_time()
        with suppress(dcp.CheckpointException, CheckpointError):
            all_of(tmp_path / "c")
        assert time.process_time() - start < 2, seed


@pytest.mark.parametrize(
    "paths",
    [{"x": ("x", 1 << 40)}, {"x": ("a", -1)}, {"x": ()}, {"x": 3}, {"x": ("a",), "y": ("a", "b")}, {"x": (1.5,)}],
    ids=str,
)
def test_impossible_paths_of_nested_keys(folder, paths):
    change(folder, lambda metadata: setattr(metadata, "planner_data", paths))
    with pytest.raises(dcp.CheckpointException, match="what it says of its nested keys is damaged: "):
        all_of(folder)


def test_lists_in_lists_come_back(tmp_path):
    dcp.save({"a": [[[torch.ones(1)], {"b": torch.ones(1)}]] * 3}, checkpoint_id=tmp_path / "c")
    assert all_of(tmp_path / "c") == {"a": [[[torch.ones(1)], {"b": torch.ones(1)}]] * 3}
