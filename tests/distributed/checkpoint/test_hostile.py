"""Checkpoints made to do harm: nothing is loaded that is not there, and effort grows with the files."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
import weft.distributed.checkpoint as dcp
from tests.mutating import damage, mutated_often
from weft._base.size import Size
from weft.distributed.checkpoint._chunks import make_up
from weft.distributed.checkpoint.format_utils import dcp_to_torch_save
from weft.distributed.checkpoint.metadata import ChunkStorageMetadata
from weft.errors import CheckpointError

SIZE = [4, 6]


@pytest.fixture
def folder(tmp_path):
    dcp.save({"x": torch.ones(SIZE), "y": torch.ones(2), "steps": 3}, checkpoint_id=tmp_path / "c")
    return tmp_path / "c"


def change(folder, edit):
    """Let `edit` change what the metadata says."""
    path = folder / ".metadata"
    contents = torch.load(path)
    edit(contents)
    torch.save(contents, path)


def refused(folder, text):
    for load in (lambda: dcp.load({"x": torch.zeros(SIZE)}, checkpoint_id=folder), lambda: all_of(folder)):
        with pytest.raises((dcp.CheckpointException, CheckpointError), match=re.escape(text)):
            load()


def all_of(folder):
    target = folder.parent / "whole.pt"
    dcp_to_torch_save(folder, target)
    return torch.load(target)


def with_chunks(chunks):
    def edit(contents):
        dtype, size, [(_, _, number, start, _)] = contents["tensors"]["x"]
        contents["tensors"]["x"] = dtype, size, [(o, s, number, start, 4 * s[0] * s[1]) for o, s in chunks]

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


@pytest.mark.parametrize("number", [-1, 1, True, 0.0, "0", None])
def test_a_file_that_there_is_not(folder, number):
    def edit(contents):
        dtype, size, [(offsets, sizes, _, start, length)] = contents["tensors"]["x"]
        contents["tensors"]["x"] = dtype, size, [(offsets, sizes, number, start, length)]

    change(folder, edit)
    refused(folder, f"it refers to file {number!r}, and has 1")


@pytest.mark.parametrize("start", [-96, 1.0, None])
def test_bytes_that_there_are_not(folder, start):
    def edit(contents):
        dtype, size, [(offsets, sizes, number, _, length)] = contents["tensors"]["x"]
        contents["tensors"]["x"] = dtype, size, [(offsets, sizes, number, start, length)]

    change(folder, edit)
    refused(folder, f"'x' has 96 bytes at {start} of 'rank0-")


def test_many_tensors_in_the_same_bytes(folder):
    """Each would cost as much as the whole file."""

    def edit(contents):
        contents["tensors"] |= {f"x{number}": contents["tensors"]["x"] for number in range(1000)}

    change(folder, edit)
    refused(folder, "are in the same bytes of 'rank0-")


def test_a_tensor_that_is_larger_than_its_file(folder):
    def edit(contents):
        dtype, _, [(_, _, number, start, _)] = contents["tensors"]["y"]
        contents["tensors"]["y"] = dtype, (1 << 40,), [((0,), (1 << 40,), number, start + 96, 4 << 40)]

    change(folder, edit)
    with pytest.raises((dcp.CheckpointException, CheckpointError, MemoryError)):
        all_of(folder)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_what_is_no_file_of_the_folder(folder, kind):
    (file,) = folder.glob("rank0-*")
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
    change(folder, with_chunks([WHOLE, ((4, 0), (0, 6)), ((4, 0), (0, 6))]))
    assert all_of(folder)["x"].tolist() == np.ones(SIZE).tolist()


def test_a_link_within_the_folder_may_be(folder):
    (file,) = folder.glob("rank0-*")
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


def fuzz(folder, original, seed):
    """Metadata that says anything is read, or refused with the documented errors, quickly."""
    draw = random.Random(seed)
    try:
        torch.save(mutated_often(original, draw), folder / ".metadata")
    except CheckpointError:
        return  # it cannot be written
    state = {"x": torch.zeros(SIZE), "y": torch.zeros(2), "steps": 0}
    start = time.process_time()
    for load in (lambda: dcp.load(state, checkpoint_id=folder), lambda: all_of(folder)):
        with suppress(dcp.CheckpointException, CheckpointError):
            load()
    assert time.process_time() - start < 2, seed


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 30_000), marks=pytest.mark.soak)], ids=len)
def test_metadata_that_says_anything(folder, seeds):
    original = torch.load(folder / ".metadata")
    for seed in seeds:
        fuzz(folder, original, seed)


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 30_000), marks=pytest.mark.soak)], ids=len)
def test_damaged_metadata_of_pytorch(seeds, tmp_path):
    shutil.copytree(Path(__file__).parent / "files" / "torch", tmp_path / "c")
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
    change(folder, lambda contents: contents.__setitem__("planner_data", paths))
    with pytest.raises(dcp.CheckpointException, match="what it says of its nested keys is damaged: "):
        all_of(folder)


def test_lists_in_lists_come_back(tmp_path):
    dcp.save({"a": [[[torch.ones(1)], {"b": torch.ones(1)}]] * 3}, checkpoint_id=tmp_path / "c")
    assert all_of(tmp_path / "c") == {"a": [[[torch.ones(1)], {"b": torch.ones(1)}]] * 3}
