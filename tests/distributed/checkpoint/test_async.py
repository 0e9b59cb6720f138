"""Saves in the background, while training goes on."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

import weft as torch
import weft.distributed as dist
import weft.distributed.checkpoint as dcp
from tests.distributed.checkpoint.test_save_load import in_ranks, names
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.tensor import Shard, distribute_tensor


class Gate(dcp.FileSystemWriter):
    """A writer that waits before it writes, until it is opened."""

    def __init__(self, path):
        super().__init__(path)
        self.opened = threading.Event()
        self.reached = threading.Event()

    def write_data(self, plan, planner):
        self.reached.set()
        assert self.opened.wait(60)
        return super().write_data(plan, planner)


def test_what_is_saved_are_the_values_of_the_call(tmp_path):
    def program(mesh):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        weight = nn.Parameter(distribute_tensor(torch.ones(4, 3), mesh, [Shard(0)]))
        optimizer = torch.optim.SGD([weight, *model.parameters()], lr=0.1)
        settings = {"steps": [1]}
        gate = Gate(tmp_path)
        expected = model.weight.tolist()
        future = dcp.async_save({"w": weight, "model": model, "settings": settings}, storage_writer=gate)
        for _ in range(2):  # of training, with collectives of its own
            (weight.sum() + model(torch.ones(4)).sum()).backward()
            optimizer.step()
            settings["steps"].append(2)
        assert weight.full_tensor().sum().item() != 12
        assert not future.done()
        gate.opened.set()
        assert future.result().state_dict_metadata.keys() == {"w", "model.weight", "model.bias", "settings.steps"}
        return expected

    expected = on_mesh((2,), program)[0]
    state = {"w": torch.zeros(4, 3), "model": {"weight": torch.zeros(2, 4)}, "settings": {"steps": None}}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["w"].tolist() == [[1] * 3] * 4
    assert state["model"]["weight"].tolist() == expected
    assert state["settings"]["steps"] == [1]


def test_a_second_save_waits_for_the_first(tmp_path):
    def program(rank):
        gate = Gate(tmp_path)
        first = dcp.async_save({"x": 1}, storage_writer=gate)
        assert gate.reached.wait(60)
        following = threading.Thread(target=gate.opened.set)
        following.start()
        second = dcp.async_save({"x": 2}, checkpoint_id=tmp_path)
        assert first.done()
        dcp.save({"x": 3}, checkpoint_id=tmp_path)
        assert second.done()
        following.join()

    in_ranks(2, program)
    state = {"x": 0}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state == {"x": 3}
    assert len(names(tmp_path)) == 2


def test_errors_reach_the_future_on_all_ranks_and_are_logged(tmp_path, caplog):
    def program(rank):
        future = dcp.async_save({f"x{rank}": object() if rank else 1}, checkpoint_id=tmp_path)
        with pytest.raises(dcp.CheckpointException, match=r"cannot save obj: it needs builtins\.object, whose code"):
            future.result()
        dcp.async_save({"x": rank}, checkpoint_id=tmp_path).result()

    with caplog.at_level(logging.ERROR):
        in_ranks(2, program)
    assert sum("async_save has failed" in record.getMessage() for record in caplog.records) == 2


def test_an_error_before_the_save_begins_is_one_of_the_future(tmp_path):
    class Failing:
        def state_dict(self):
            raise ValueError("no state")

        def load_state_dict(self, state):
            raise AssertionError

    def program(rank):
        future = dcp.async_save({"x": Failing() if rank else 1}, checkpoint_id=tmp_path)
        with pytest.raises(dcp.CheckpointException, match="ValueError: no state") as raised:
            future.result()
        return list(raised.value.failures)

    assert in_ranks(2, program) == [[1], [1]]


def test_one_process_saves_without_a_group(tmp_path):
    x = torch.arange(3.0)
    future = dcp.async_save({"x": x * 2}, checkpoint_id=tmp_path)
    x += 1
    future.result()
    dcp.load({"x": x}, checkpoint_id=tmp_path)
    assert x.tolist() == [0, 2, 4]


def test_the_group_of_the_threads_is_made_once(tmp_path):
    def program(rank):
        for step in range(2):
            dcp.async_save({"x": step}, checkpoint_id=tmp_path).result()
        return dist.get_pg_count()

    assert in_ranks(2, program) == [2, 2]


def test_nothing_is_left_open(tmp_path):
    def program(rank):
        state = {"x": torch.ones(2000), f"own {rank}": torch.ones(2000)}
        dcp.async_save(state, checkpoint_id=tmp_path).result()
        dcp.load(state, checkpoint_id=tmp_path)
        dcp.save(state, checkpoint_id=tmp_path)

    def count():
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), maps.count(str(tmp_path)), maps.count("memfd:")

    in_ranks(2, program)
    before = count()
    in_ranks(2, program)
    assert count() == before
    assert before[1] == 0
