"""Planners and storages of users."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import pytest

import weft as torch
import weft.distributed.checkpoint as dcp
from tests.distributed.checkpoint.test_save_load import in_ranks
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.checkpoint.metadata import MetadataIndex
from weft.distributed.checkpoint.planner import LoadItemType, WriteItemType
from weft.distributed.checkpoint.storage import WriteResult
from weft.distributed.tensor import Shard, distribute_tensor
from weft.futures import Future


class Renaming(dcp.DefaultSavePlanner):
    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        super().set_up_planner({f"foo_{key}": value for key, value in state_dict.items()}, storage_meta, is_coordinator)


class Halving(dcp.DefaultSavePlanner):
    """Stores elements in half the bytes."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        for item in plan.items:
            if item.tensor_data is not None:
                item.tensor_data.properties.dtype = torch.float16
        return plan

    def resolve_data(self, write_item):
        data = super().resolve_data(write_item)
        return data if write_item.type is WriteItemType.BYTE_IO else data.to(torch.float16)


class Noting(dcp.DefaultSavePlanner):
    """Stores a note of each rank."""

    def __init__(self, note):
        super().__init__(flatten_state_dict=False)
        self.note = note

    def create_local_plan(self):
        return replace(super().create_local_plan(), planner_data=self.note)

    def create_global_plan(self, all_plans):
        plans, metadata = super().create_global_plan(all_plans)
        return plans, replace(metadata, planner_data=[plan.planner_data for plan in plans])


class RenamingBack(dcp.DefaultLoadPlanner):
    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.renamed = state_dict
        super().set_up_planner({f"foo_{key}": value for key, value in state_dict.items()}, metadata, is_coordinator)

    def load_bytes(self, read_item, value):
        self.renamed[read_item.dest_index.fqn.removeprefix("foo_")] = torch.load(value)


class Materializing(dcp.DefaultLoadPlanner):
    """Loads into new tensors."""

    def resolve_tensor(self, read_item):
        return torch.empty_like(super().resolve_tensor(read_item))

    def commit_tensor(self, read_item, tensor):
        self.state_dict[read_item.dest_index.fqn] = tensor


def test_keys_are_renamed(tmp_path):
    dcp.save({"x": torch.ones(2), "note": "hi"}, checkpoint_id=tmp_path, planner=Renaming())
    state = {"x": torch.zeros(2), "note": None}
    dcp.load(state, checkpoint_id=tmp_path, planner=RenamingBack())
    assert state["x"].tolist() == [1, 1]
    assert state["note"] == "hi"


def test_elements_are_stored_in_another_type(tmp_path):
    def program(mesh):
        x = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
        return dcp.save({"x": x, "note": "hi"}, checkpoint_id=tmp_path, planner=Halving())

    metadata = on_mesh((2,), program)[0]
    assert metadata.state_dict_metadata["x"].properties.dtype is torch.float16
    place = metadata.storage_data[MetadataIndex("x", (0,))]
    content = (tmp_path / place.relative_path).read_bytes()[place.offset : place.offset + place.length]
    assert torch.load(io.BytesIO(content)).dtype is torch.float16
    state = {"x": torch.zeros(5)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["x"].tolist() == [0, 1, 2, 3, 4]


def test_planners_store_data_of_their_own(tmp_path):
    in_ranks(2, lambda rank: dcp.save({"x": 1}, checkpoint_id=tmp_path, planner=Noting(f"of rank {rank}")))
    assert dcp.FileSystemReader(tmp_path).read_metadata().planner_data == ["of rank 0", "of rank 1"]


def test_tensors_are_loaded_elsewhere(tmp_path):
    dcp.save({"x": torch.ones(2)}, checkpoint_id=tmp_path)
    old = torch.zeros(2)
    planner = Materializing(flatten_state_dict=False)
    state = {"x": old}
    dcp.load(state, checkpoint_id=tmp_path, planner=planner)
    assert state["x"].tolist() == [1, 1]
    assert old.tolist() == [0, 0]


def done(result):
    future = Future()
    future.set_result(result)
    return future


class Shelf:
    """What a storage in memory holds, for all ranks."""

    def __init__(self):
        self.items, self.metadata, self.lock = {}, None, threading.Lock()


class ShelfWriter(dcp.StorageWriter):
    def __init__(self, shelf):
        self.shelf = shelf
        self.discarded = False

    def reset(self, checkpoint_id=None):
        pass

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        pass

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def write_data(self, plan, planner):
        with self.shelf.lock:
            for item in plan.items:
                data = planner.resolve_data(item)
                self.shelf.items[item.index] = data.getvalue() if isinstance(data, io.BytesIO) else data.tolist()
        return done([WriteResult(item.index, 0, None) for item in plan.items])

    def finish(self, metadata, results):
        if len(self.shelf.items) != sum(map(len, results)):
            raise OSError("the shelf is full")
        self.shelf.metadata = metadata

    def discard(self):
        self.discarded = True

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


class ShelfReader(dcp.StorageReader):
    def __init__(self, shelf):
        self.shelf = shelf

    def reset(self, checkpoint_id=None):
        pass

    def read_metadata(self, *args, **kwargs):
        return self.shelf.metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        pass

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        for item in plan.items:
            data = self.shelf.items[item.storage_index]
            if item.type is LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(data))
            else:
                box = tuple(slice(a, a + b) for a, b in zip(item.storage_offsets, item.lengths, strict=True))
                target = planner.resolve_tensor(item)
                target.copy_(torch.tensor(data)[box])
                planner.commit_tensor(item, target)
        return done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


def test_a_storage_of_ones_own():
    shelf = Shelf()

    def save(mesh):
        state = {"x": distribute_tensor(torch.arange(5.0), mesh, [Shard(0)]), "note": "hi"}
        dcp.save(state, storage_writer=ShelfWriter(shelf))

    on_mesh((2,), save)
    state = {"x": torch.zeros(5), "note": None}
    dcp.load(state, storage_reader=ShelfReader(shelf))
    assert state["x"].tolist() == [0, 1, 2, 3, 4]
    assert state["note"] == "hi"


def test_a_storage_is_told_of_failures_on_all_ranks():
    shelf = Shelf()
    shelf.items["something"] = "else"

    def save(rank):
        writer = ShelfWriter(shelf)
        with pytest.raises(dcp.CheckpointException, match="OSError: the shelf is full") as raised:
            dcp.save({"x": 1, "y": torch.ones(2)}, storage_writer=writer)
        return writer.discarded, list(raised.value.failures)

    assert in_ranks(2, save) == [(True, [0])] * 2
    assert shelf.metadata is None
