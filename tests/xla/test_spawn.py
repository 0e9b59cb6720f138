"""Starting replicas, and what happens when one fails."""

from __future__ import annotations

import pytest

import weft as torch
import weft.xla.core.xla_model as xm
import weft.xla.distributed.xla_multiprocessing as xmp
import weft.xla.runtime as xr
from tests.xla import jobs
from weft.multiprocessing import ProcessRaisedException


def test_one_replica_runs_in_this_process():
    ordinals = []
    xmp.spawn(ordinals.append, nprocs=1)
    xmp.launch(ordinals.append, debug_single_process=True)
    assert ordinals == [0, 0]
    assert xr.world_size() == 1


def test_one_replica_has_nobody_to_send_to():
    with pytest.raises(RuntimeError, match=r"^send: there is one replica; start several by xla_multiprocessing.spawn$"):
        xm.send(torch.ones(2), 0)


def test_arguments_of_spawn_are_checked_before_processes_start():
    with pytest.raises(TypeError, match=r"^spawn: args must be a tuple of arguments, got int$"):
        xmp.spawn(print, args=3, nprocs=2)
    with pytest.raises(TypeError, match=r"^spawn: fn must be a function of a module, got 3$"):
        xmp.spawn(3, nprocs=2)
    for nprocs in ("2", 2.0, True):
        with pytest.raises(TypeError, match=rf"^spawn: nprocs must be an int or None, got {nprocs!r}$"):
            xmp.spawn(print, nprocs=nprocs)
    with pytest.raises(ValueError, match=r"^spawn: XLA does not survive a fork; use start_method='spawn' or"):
        xmp.spawn(print, nprocs=2, start_method="fork")


def test_cpus_are_as_many_replicas_as_a_variable_says(monkeypatch):
    ordinals = []
    xmp.spawn(ordinals.append)
    assert ordinals == [0]
    monkeypatch.setenv("CPU_NUM_DEVICES", "four")
    with pytest.raises(RuntimeError, match=r"^CPU_NUM_DEVICES=four: expected a number$"):
        xmp.spawn(print)


def test_a_replica_that_ends_early_is_told():
    with pytest.raises(ProcessRaisedException, match=r"rank 1 called the end of its function"):
        xmp.spawn(jobs.end_early, nprocs=2, start_method="forkserver")


def test_the_number_of_replicas_is_at_least_one():
    with pytest.raises(ValueError, match=r"^spawn: nprocs must be at least 1, got 0$"):
        xmp.spawn(print, nprocs=0)


def test_a_model_for_all_replicas():
    model = torch.nn.Linear(2, 1)
    assert xmp.MpModelWrapper(model).to("xla") is model
    assert model.weight.device.type == "xla"
    assert xmp.MpSerialExecutor().run(lambda: 3) == 3


def test_replicas_that_differ_are_told():
    with pytest.raises(ProcessRaisedException, match=r"rank 0 called a program with all_gather\(0, 2\) of "):
        xmp.spawn(jobs.differ, nprocs=2, start_method="forkserver")


def test_a_replica_that_fails_ends_the_others():
    with pytest.raises(ProcessRaisedException, match="KeyError: 'lost'"):
        xmp.spawn(jobs.fail, nprocs=2, start_method="forkserver")


@pytest.mark.soak
def test_groups_of_replicas():
    xmp.spawn(jobs.form_groups, nprocs=4)


@pytest.mark.soak
def test_replicas_may_be_ranks_of_a_group(tmp_path):
    context = xmp.spawn(jobs.meet_in_a_group, (str(tmp_path / "x"),), nprocs=2, join=False)
    while not context.join():
        pass
    x, total, order = torch.load(tmp_path / "x")
    assert (x.tolist(), total.tolist(), order.item()) == ([3, 3], [6, 6], 0)
