"""Cases that two replicas run together: what is the same on each of them as in a program without replicas."""

from __future__ import annotations

import io
import os
import tempfile
import threading
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest

import weft as torch
import weft.xla.core.xla_model as xm
import weft.xla.distributed.spmd as xs
import weft.xla.runtime as xr
import weft.xla.utils.serialization as xser
from tests.distributed.processes import Cases
from weft.xla.core import functions as xf
from weft.xla.debug import profiler as xp

case = Cases()


def here(*shape: int) -> torch.Tensor:
    """Numbers that differ between replicas."""
    numbers = torch.arange(float(np.prod(shape))).reshape(shape) + 10 * xr.global_ordinal()
    return numbers.to("xla")


# --- devices ---


@case
def each_replica_has_a_device():
    ordinal = xr.global_ordinal()
    real = f"CPU:{ordinal}"
    assert xm.xla_device() == xm.xla_device(0) == torch.device("xla:0")
    assert xm.get_xla_supported_devices() == ["xla:0"]
    assert xm.xla_real_devices() == [xm._xla_real_device("xla:0")] == xm._DEVICES.value == [real]
    assert xm.xla_device_hw("xla:0") == "CPU"
    assert xm.xla_replication_devices() == ["CPU:0", "CPU:1"]
    assert xm.get_local_ordinal() == ordinal
    assert xm.is_master_ordinal(local=False) is (ordinal == 0)
    assert xm.is_xla_tensor(torch.ones(1, device="xla"))
    with pytest.raises(IndexError, match=r"^Device index 1 out of range in \['xla:0'\]$"):
        xm.xla_device(1)
    with pytest.raises(RuntimeError, match=r"^Invalid device format: cpu$"):
        xm.xla_device_hw("cpu")


@case
def replication_is_set():
    xm.set_replication("xla:0", ["xla:0"])
    token, context = xm._get_all_reduce_token()
    assert (context.replication, context.device_index, token.item()) == (["CPU:0", "CPU:1"], 0, 0)
    xm.set_replication("xla:0", [])
    assert xm._get_device_context("xla:0").replication == []


@case
def states_belong_to_devices():
    context = xm._run_step_closures()
    assert isinstance(context, xm.DeviceContext)
    assert xm._DEVICE_CONTEXTS["xla:0"] is context is xm._get_device_context()
    assert (xm.XLA_LIB.ns, context.device) == ("xla", "xla:0")


@case
def deprecated_names_know_the_job():
    with pytest.warns(UserWarning, match=r"^xrt_world_size\(\) will be removed in release 2\.7\.$"):
        assert xm.xrt_world_size() == 2
    with pytest.warns(UserWarning, match=r"^xla_model\.get_ordinal\(\) will be removed in release 2\.7\.$"):
        assert xm.get_ordinal() == xr.global_ordinal()
    with pytest.warns(UserWarning, match=r"^xla_model\.parse_xla_device\(\) will be removed in release 2\.7\.$"):
        assert xm.parse_xla_device("CPU:1") == ("CPU", 1)


@case
def only_the_master_prints_and_serves():
    file = io.StringIO()
    xm.master_print("a", 1, fd=file)
    xm.master_print("b", fd=file, local=True)
    assert file.getvalue() == ("" if xr.global_ordinal() else "a 1\nb\n")
    if xr.global_ordinal():
        assert xp.start_server(0) is None


@case
def memory_and_waiting():
    x = here(1000) + 1
    xm.unlazy([x])
    assert x._read().content.is_ready()
    assert xm.get_memory_info()["bytes_used"] >= x.nbytes
    xm.wait_device_ops()
    xm.wait_device_ops(["xla:0"])


@case
def random_states_are_each_replicas_own():
    xm.set_rng_state(5 + xr.global_ordinal())
    assert xm.get_rng_state("xla:0") == 5 + xr.global_ordinal()
    with xm.fork_rng():
        first = torch.rand(4, device="xla")
    assert xm.get_rng_state() == 5 + xr.global_ordinal()
    both = xm.all_gather(first)
    xm.mark_step()
    assert both[:4].tolist() != both[4:].tolist()


# --- steps and graphs ---


@case
def closures_run_after_the_program_of_all_replicas():
    seen, done = [], threading.Event()
    total = xm.all_reduce(xm.REDUCE_SUM, here(2))
    xm.add_step_closure(lambda x: seen.append(x.tolist()), args=(total,))
    xm.add_step_closure(done.set, run_async=True)
    xm.mark_step()
    assert seen == [[10, 12]]
    assert done.wait(60)


@case
def a_closure_that_fails_on_one_replica_is_told_there():
    if xr.global_ordinal():
        xm.add_step_closure(lambda: 1 // 0, run_async=True)
    xm.mark_step()
    for thread in threading.enumerate():
        if thread.name == "step closures":
            thread.join()
    if xr.global_ordinal():
        with pytest.raises(RuntimeError, match=r"^Cannot run asynchronous closure due to previously raised exception$"):
            xm.wait_device_ops()
    xm.mark_step()


@case
def variables_of_the_environment():
    variables = {"XLA_SYNC_WAIT": "1", "XLA_EMIT_STEPLOG": "1", "XLA_ALWAYS_ALLREDUCE": "1", "XLA_USE_SPMD": "1"}
    os.environ |= {**variables, "RATE_TRACKER_SMOOTHING": "0.5"}
    errors = io.StringIO()
    try:
        total = xm.all_reduce(xm.REDUCE_SUM, here(2))
        with redirect_stderr(errors):
            xm.mark_step()
        assert total._read().content.is_ready()
        assert xm.xla_device(1) == torch.device("xla:0")
        assert xm.RateTracker()._smooth_factor == 0.5
    finally:
        for name in (*variables, "RATE_TRACKER_SMOOTHING"):
            del os.environ[name]
    assert errors.getvalue() == "torch_xla.core.xla_model::mark_step\n"
    assert total.tolist() == [10, 12]


@case
def graphs_are_shown_before_they_run():
    x = here(2)
    y = [xm.all_reduce(xm.REDUCE_SUM, x) + 1]
    xm.optimization_barrier_(y)
    text = xm.get_stablehlo(y)
    assert "stablehlo.all_reduce" in text
    assert "optimization_barrier" in text
    assert xm.get_stablehlo_bytecode(y).startswith(b"ML\xefR")
    assert y[0]._read().is_pending
    xm.mark_step()
    assert y[0].tolist() == [11, 13]


@case
def helpers_do_not_depend_on_the_job():
    tracker = xm.RateTracker(clock=iter([0.0, 2.0]).__next__)
    tracker.add(6)
    assert tracker.rate() == 3
    x = here(2)
    assert xm.ToXlaTensorArena(lambda found: [t + 1 for t in found], xm.is_xla_tensor).transform(x).tolist() == [
        n + 1 for n in x.tolist()
    ]
    doubled = xm.CoalescingBuckets(lambda given, out: [2 * t for t in given], [x, x])()
    assert doubled[1].tolist() == (2 * x).tolist()
    with pytest.raises(RuntimeError, match="is sharing a view with"):
        xm.check_view_sharing([x, x[:1]])


# --- collectives ---


@case
def parts_are_gathered_by_a_sum():
    x = here(2, 3)
    for dim in (0, -1):
        assert xm._all_gather_using_all_reduce(x, dim).tolist() == xm.all_gather(x, dim).tolist()
    assert xm._all_gather_using_all_reduce(x, groups=[[0], [1]]).tolist() == x.tolist()


@case
def outputs_of_lists_are_checked():
    x = here(4)
    output = [torch.zeros(2), torch.zeros(2)]
    assert xm.reduce_scatter(xm.REDUCE_SUM, [x, x], 1.0, 0, 2, output=output) is output
    assert output[0].tolist() == ([14, 16] if xr.global_ordinal() else [10, 12])
    with pytest.raises(TypeError, match=r"^`output` needs to be a list of Tensors, but given <class 'int'>\.$"):
        xm.reduce_scatter(xm.REDUCE_SUM, [x], 1.0, 0, 2, output=3)
    with pytest.raises(ValueError, match=r"^`output` length doesn't match `input` length: 2 vs 1\.$"):
        xm.reduce_scatter(xm.REDUCE_SUM, [x], 1.0, 0, 2, output=output)


@case
def functions_have_the_gradient_of_the_own_loss():
    ordinal = xr.global_ordinal()
    x = torch.tensor([1.0, 5.0]) if ordinal else torch.tensor([2.0, 3.0])
    for word, total, grad in (
        ("sum", [3, 8], [1, 1]),
        ("mul", [2, 15], [2, 3] if ordinal else [1, 5]),
        ("max", [2, 5], [0, 1] if ordinal else [1, 0]),
        ("min", [1, 3], [1, 0] if ordinal else [0, 1]),
    ):
        own = x.clone().requires_grad_(True)
        result = xf.all_reduce(word, own, scale=0.5)
        result.sum().backward()
        assert result.tolist() == [n / 2 for n in total]
        assert own.grad.tolist() == [n / 2 for n in grad]
    own = x.clone().requires_grad_(True)
    gathered = xf.all_gather(own)
    (gathered * torch.arange(4.0)).sum().backward()
    assert gathered.tolist() == [2, 3, 1, 5]
    assert own.grad.tolist() == ([2, 3] if ordinal else [0, 1])


@case
def a_matrix_is_divided_by_columns():
    whole = torch.arange(12.0).reshape(3, 4).sin()
    part = whole[:, 2 * xr.global_ordinal() :][:, :2].clone().requires_grad_(True)
    x = torch.arange(16.0).reshape(4, 4).cos() + xr.global_ordinal()
    for split in (1, 2):
        np.testing.assert_allclose(xf.distributed_mm(part, x, split).detach(), whole @ x, rtol=1e-5, atol=1e-6)
    xf.distributed_mm(part, x).sum().backward()
    rows = x[2 * xr.global_ordinal() :][:2]
    np.testing.assert_allclose(part.grad, rows.sum(1).expand(3, 2), rtol=1e-5)


# --- the host ---


@case
def the_master_saves():
    folder = Path(xm.rendezvous("folder", tempfile.mkdtemp().encode())[0].decode())
    x = xm.all_reduce(xm.REDUCE_SUM, here(2))
    xm.wait_device_ops()
    xm.save({"x": x}, folder / "shared")
    xm.rendezvous("torch_xla.core.xla_model.save")
    assert xm.load(folder / "shared")["x"].tolist() == [10, 12]
    xm.save({"x": x}, folder / f"own{xr.global_ordinal()}", master_only=False)
    xser.save(x, folder / "global", global_master=True)
    xm.rendezvous("saved")
    assert sorted(path.name for path in folder.iterdir()) == ["global", "own0", "own1", "shared"]
    there = xm._maybe_convert_to_cpu([x], convert=xr.global_ordinal() == 0)
    assert xm.is_xla_tensor(there[0]) is (xr.global_ordinal() == 1)
    assert xm.is_xla_tensor(xm.send_cpu_data_to_device([torch.ones(2)], "xla:0")[0])


@case
def what_a_rendezvous_of_two_does_not_take():
    assert xm.xla_rendezvous(b"a" * xr.global_ordinal(), ordinals=[0, 1], tag="t") == [b"", b"a"]
    with pytest.raises(ValueError, match=r"^Only global rendezvous is supported$"):
        xm.rendezvous("tag", replicas=[0])
    with pytest.raises(TypeError, match=r"^`payload` must be bytes, not <class 'str'>$"):
        xm.rendezvous("tag", "text")


@case
def replicas_do_not_split_tensors():
    with pytest.raises(
        RuntimeError, match=r"^mark_sharding: this process is one of 2 replicas, which have one device each"
    ):
        xs.mark_sharding(here(2), xs.Mesh(range(2), (2,)), (0,))
