"""Distributed tensors saved on one mesh and loaded on another, or as plain tensors."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import weft as torch
import weft.distributed as dist
import weft.distributed.checkpoint as dcp
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.checkpoint.metadata import MetadataIndex
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

MESHES = [(1,), (2,), (3,), (4,), (2, 2), (1, 3)]


def numbered(shape, dtype=torch.float32):
    return torch.arange(prod(shape)).reshape(shape).to(dtype)


@st.composite
def placements(draw, mesh, ndim):
    """A placement for each dim of a mesh, or None for a plain tensor."""
    kinds = st.sampled_from([Replicate(), *map(Shard, range(ndim))])
    return draw(st.one_of(st.none(), st.tuples(*[kinds] * len(mesh))))


@st.composite
def moves(draw):
    """A shape, and two meshes with placements on each."""
    shape = draw(st.lists(st.integers(0, 5), max_size=3).map(tuple))
    meshes = draw(st.tuples(*[st.sampled_from(MESHES)] * 2))
    return shape, *[(mesh, draw(placements(mesh, len(shape)))) for mesh in meshes]


def placed(tensor, mesh, wanted):
    return tensor if wanted is None else distribute_tensor(tensor, mesh, list(wanted))


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@given(moves())
@example(((1,), ((1,), None), ((2,), (Shard(0),))))  # a rank without elements
def test_what_is_saved_on_one_mesh_is_loaded_on_another(tmp_path_factory, move):
    shape, (source, saved), (target, loaded) = move
    folder, expected = tmp_path_factory.mktemp("checkpoint"), numbered(shape)

    def save(mesh):
        dcp.save({"x": placed(numbered(shape), mesh, saved)}, checkpoint_id=folder)

    def load(mesh):
        state = {"x": placed(numbered(shape) * 0 - 1, mesh, loaded)}
        dcp.load(state, checkpoint_id=folder)
        assert torch.equal(whole(state["x"]), expected)

    on_mesh(source, save)
    on_mesh(target, load)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int64", "bfloat16", "float16", "float64", "complex64", "complex128"]
)
def test_elements_of_every_type_are_kept(dtype, tmp_path):
    kind = getattr(torch, dtype)

    def program(mesh):
        state = {"x": distribute_tensor(numbered((3, 2), kind), mesh, [Shard(0)]), "y": numbered((), kind)}
        dcp.save(state, checkpoint_id=tmp_path)

    on_mesh((2,), program)
    state = {"x": torch.zeros(3, 2, dtype=kind), "y": torch.ones((), dtype=kind)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert torch.equal(state["x"], numbered((3, 2), kind))
    assert torch.equal(state["y"], numbered((), kind))


def test_elements_are_cast_to_the_type_that_is_there(tmp_path):
    dcp.save({"x": numbered((3,))}, checkpoint_id=tmp_path)
    state = {"x": torch.zeros(3, dtype=torch.float64)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["x"].dtype is torch.float64
    assert state["x"].tolist() == [0, 1, 2]


def test_a_tensor_may_be_on_some_ranks_only(tmp_path):
    def program(rank):
        dist.init_process_group("threads")
        mesh = DeviceMesh("cpu", [1, 2])

        def parted(value):
            own = torch.full((0 if rank == 0 else 2,), value * rank)
            return DTensor.from_local(own, mesh, [Shard(0)], shape=(4,))

        metadata = dcp.save({"x": parted(1.0)}, checkpoint_id=tmp_path)
        assert len(metadata.state_dict_metadata["x"].chunks) == 2
        state = {"x": parted(0.0)}
        dcp.load(state, checkpoint_id=tmp_path)
        return state["x"].to_local().tolist()

    assert dist.run_threads(program, nprocs=3) == [[], [1, 1], [2, 2]]


def test_parameters_are_loaded_in_place(tmp_path):
    def program(mesh):
        parameter = torch.nn.Parameter(distribute_tensor(numbered((5, 2)), mesh, [Shard(0)]))
        dcp.save({"w": parameter}, checkpoint_id=tmp_path)
        alias = parameter.detach()
        with torch.no_grad():
            parameter.zero_()
        dcp.load({"w": parameter}, checkpoint_id=tmp_path)
        assert parameter.requires_grad
        assert parameter.placements == (Shard(0),)
        assert torch.equal(alias.full_tensor(), numbered((5, 2)))

    on_mesh((2,), program)


def test_each_chunk_is_written_once_and_by_ranks_in_balance(tmp_path):
    def program(mesh):
        state = {
            "sharded": distribute_tensor(numbered((8, 6)), mesh, [Shard(0), Replicate()]),
            **{f"plain {at}": numbered((6,)) for at in range(8)},
        }
        return dcp.save(state, checkpoint_id=tmp_path)

    metadata = on_mesh((2, 2), program)[0]
    assert [list(chunk.offsets) for chunk in metadata.state_dict_metadata["sharded"].chunks] == [[0, 0], [4, 0]]
    sizes = Counter()
    for key, entry in metadata.state_dict_metadata.items():
        for chunk in entry.chunks:
            sizes[metadata.storage_data[MetadataIndex(key, chunk.offsets)].relative_path] += 4 * chunk.numel
    assert sorted(sizes.values()) == [96] * 4  # 192 bytes of `sharded`, and 192 of the others


def test_only_the_bytes_that_are_needed_are_read(tmp_path):
    dcp.save({"x": numbered((4, 3)), "y": numbered((2,))}, checkpoint_id=tmp_path)
    reader = _Watching(tmp_path)

    def program(mesh):
        planner = dcp.DefaultLoadPlanner()
        state = {"x": distribute_tensor(torch.zeros(4, 3), mesh, [Shard(0)])}
        dcp.load(state, storage_reader=reader, planner=planner)
        return state["x"].to_local().tolist()

    assert on_mesh((2,), program) == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    assert sorted(reader.boxes) == [("x", (0, 0), (2, 3)), ("x", (2, 0), (2, 3))]


class _Watching(dcp.FileSystemReader):
    def __init__(self, path):
        super().__init__(path)
        self.boxes = []

    def read_data(self, plan, planner):
        for item in plan.items:
            self.boxes.append((item.storage_index.fqn, tuple(item.storage_offsets), tuple(item.lengths)))
        return super().read_data(plan, planner)
