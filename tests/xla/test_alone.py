"""Collectives and optimizers' steps in a program without replicas; and all names of PyTorch/XLA's interface."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.xla.core import functions as xf
from weft.xla.core import xla_model as xm

DOCUMENTED = """
is_master_ordinal xla_device xla_device_hw all_reduce all_gather all_to_all add_step_closure get_stablehlo
get_stablehlo_bytecode wait_device_ops optimizer_step save rendezvous mesh_reduce set_rng_state get_rng_state
get_memory_info
"""
CONSTANTS = "REDUCE_SUM REDUCE_MUL REDUCE_AND REDUCE_OR REDUCE_MIN REDUCE_MAX"
OTHERS = """
XLA_LIB _DEVICES _DEVICE_CONTEXTS _DEVICE_CONTEXTS_LOCK xrt_world_size get_ordinal parse_xla_device is_xla_tensor
get_xla_supported_devices get_local_ordinal master_print _xla_real_device xla_real_devices xla_replication_devices
set_replication unlazy DeviceContext _get_device_context RateTracker ToXlaTensorArena CoalescingBuckets MemoryInfo
check_view_sharing all_gather_bucketized collective_permute collective_broadcast send recv reduce_scatter
reduce_scatter_bucketized _all_gather_using_all_reduce mark_step reduce_gradients all_reduce_bucketized_gradients
_fetch_gradients optimization_barrier_ broadcast_master_param _maybe_convert_to_cpu send_cpu_data_to_device
xla_rendezvous do_on_ordinals fork_rng _get_all_reduce_token _run_step_closures
"""
MEMBERS = {
    "RateTracker": "add rate global_rate _update _smooth",
    "ToXlaTensorArena": "transform",
    "CoalescingBuckets": "add flush __call__",
    "DeviceContext": "",
    "MemoryInfo": "",
}


@pytest.mark.parametrize("name", f"{DOCUMENTED} {CONSTANTS} {OTHERS}".split())
def test_every_name_is_there(name):
    assert hasattr(xm, name)
    for member in MEMBERS.get(name, "").split():
        assert hasattr(getattr(xm, name), member)


def test_constants_and_states():
    assert [getattr(xm, name) for name in CONSTANTS.split()] == ["sum", "mul", "and", "or", "min", "max"]
    assert set(xm.MemoryInfo.__annotations__) == {"bytes_used", "bytes_limit"}
    assert xm._DEVICES.value == xm.xla_real_devices()
    token, context = xm._get_all_reduce_token()
    assert token.shape == ()
    assert xm.is_xla_tensor(token)
    assert context is xm._get_device_context() is xm._run_step_closures()
    assert xm._DEVICE_CONTEXTS["xla:0"] is context
    assert (xm.XLA_LIB.ns, xm.XLA_LIB.kind) == ("xla", "DEF")
    with pytest.raises(
        RuntimeError, match=r"^XLA_LIB\.define\('f\(\) -> Tensor'\): operators are not defined by schemas"
    ):
        xm.XLA_LIB.define("f() -> Tensor")


# --- collectives ---


def numbers(*shape):
    return torch.arange(float(np.prod(shape))).reshape(shape).to("xla")


@pytest.mark.parametrize("always", ["", "1"])
@pytest.mark.parametrize("reduce_type", ["sum", "mul", "min", "max"])
def test_a_reduction_of_one_replica_is_a_copy(monkeypatch, always, reduce_type):
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", always)
    x = numbers(3)
    result = xm.all_reduce(reduce_type, x)
    assert result is not x
    assert result.tolist() == [0, 1, 2]
    tensors = [x, numbers(2)]
    assert xm.all_reduce(reduce_type, tensors, scale=2.0) is tensors
    assert tensors[1].tolist() == ([0, 2] if always else [0, 1])


def test_reductions_of_bits():
    assert xm.all_reduce(xm.REDUCE_AND, torch.tensor([True, False])).tolist() == [True, False]
    assert xm.all_reduce(xm.REDUCE_OR, torch.tensor([6, 1])).tolist() == [6, 1]


def test_nothing_moves():
    x = numbers(4, 2)
    for result in (
        xm.all_gather(x),
        xm.all_gather(x, dim=-1, groups=[[0]]),
        xm._all_gather_using_all_reduce(x, 1),
        xm.all_to_all(x, 0, 1, 1),
        xm.collective_permute(x, [[0, 0]]),
        xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, 1),
        *xm.all_gather([x], pin_layout=False),
        *xm.all_gather_bucketized([x]),
        *xm.reduce_scatter(xm.REDUCE_SUM, [x], 1.0, 0, 1),
        *xm.reduce_scatter_bucketized(xm.REDUCE_MAX, [x], 1.0, 0, 1),
    ):
        assert result.tolist() == x.tolist()
    assert not xm.collective_permute(x, []).any()
    assert xm.reduce_scatter(xm.REDUCE_SUM, x, 0.5, 0, 1).tolist() == (x / 2).tolist()
    assert xm.collective_broadcast([x], 0) is None
    output = [torch.zeros(4, 2)]
    assert xm.reduce_scatter(xm.REDUCE_SUM, [x], 1.0, 0, 1, output=output) is output
    assert output[0].tolist() == x.tolist()
    xm.mark_step()


def test_what_collectives_do_not_take():
    x = numbers(2)
    for call, message in {
        lambda: xm.reduce_scatter(
            "sum", [x], 1.0, 0, 1, output=3
        ): r"^`output` needs to be a list of Tensors, but given ",
        lambda: xm.all_gather([x], output=x, pin_layout=False): r"^`output` needs to be a list of Tensors, but given ",
        lambda: xm.all_gather(x, output=[x]): r"^`output` needs to be a Tensor, but given <class 'list'>\.$",
        lambda: xm.all_gather(3): r"^`value` needs to be a Tensor or a list of Tensors, but given <class 'int'>\.$",
        lambda: xm.reduce_scatter(
            "sum", 3, 1.0, 0, 1
        ): r"^`input` needs to be a Tensor or a list of Tensors, but given ",
        lambda: xm.all_reduce(
            "sum", 3
        ): r"^`inputs` needs to be a Tensor or a list of Tensors, but given <class 'int'>",
        lambda: xm.all_reduce(
            "sum", (3,)
        ): r"^`inputs` needs to be a Tensor or a list of Tensors, but given <class 'li",
        lambda: xm.collective_broadcast(x): r"^`tensors` needs to be a list of Tensors, but given ",
        lambda: xm.optimization_barrier_(x): r"^`tensors` needs to be a list of Tensors, but given ",
        lambda: xm.all_reduce("sum", x, groups=[0, 1]): r"^groups must be lists of ordinals, such as .*, got \[0, 1\]$",
        lambda: xm.all_gather(x, groups=[["0"]]): r"^groups must be lists of ordinals, such as .*, got \[\['0'\]\]$",
        lambda: xm.collective_permute(x, [0, 1]): r"^collective_permute: pairs must be lists of ordinals, such as ",
        lambda: xm.all_gather_bucketized(x): r"^`input_list` needs to be a list of Tensors, but given ",
        lambda: xm.reduce_scatter_bucketized("sum", x, 1.0, 0, 1): r"^`input_list` needs to be a list of Tensors, but ",
    }.items():
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(ValueError, match=r"^`output` length doesn't match `input` length: 2 vs 1\.$"):
        xm.reduce_scatter("sum", [x], 1.0, 0, 1, output=[x, x])
    with pytest.raises(ValueError, match=r"^`output_list` length doesn't match `input_list` length: 2 vs 1\.$"):
        xm.all_gather_bucketized([x], output=[x, x])
    with pytest.raises(ValueError, match=r"^collective_permute: pairs are \[source, target\], got \[\[0, 0, 0\]\]$"):
        xm.collective_permute(x, [[0, 0, 0]])
    with pytest.raises(
        RuntimeError, match=r"^For xm\.all_gather with list of tensors input, pin_layout=True is not yet"
    ):
        xm.all_gather([x])
    with pytest.raises(RuntimeError, match=r"^For xm\.all_gather_bucketized, pin_layout=True is not yet supported\.$"):
        xm.all_gather_bucketized([x], pin_layout=True)
    with pytest.raises(AssertionError, match=r"^Replica groups must have the same number of replicas/shards\.$"):
        xm.all_gather(x, groups=[[0], []])
    with pytest.raises(
        RuntimeError, match=r"^recv: there is one replica; start several by xla_multiprocessing\.spawn$"
    ):
        xm.recv(x, 0)


# --- steps ---


def test_a_step_of_an_optimizer():
    model = nn.Linear(2, 1).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model.weight.detach().clone()
    x = numbers(1, 2)
    model(x).sum().backward()
    xm.reduce_gradients(optimizer)
    xm.all_reduce_bucketized_gradients([model.bias.grad], 1.0, None, True, bucket_cap_mb=1)
    assert [gradient.tolist() for gradient in xm._fetch_gradients(optimizer)] == [x.tolist(), [1]]
    assert xm.optimizer_step(optimizer, optimizer_args={"closure": lambda: 7}) == 7
    assert model.weight._read().is_pending  # the step goes on
    xm.optimizer_step(optimizer, barrier=True)
    assert not model.weight._read().is_pending
    assert model.weight.tolist() == (before - 2 * x).tolist()
    xm.broadcast_master_param(model)
    assert model.weight.tolist() == (before - 2 * x).tolist()


# --- core.functions ---


@pytest.mark.parametrize("reduce_type", ["sum", "mul", "min", "max"])
def test_gradients_of_reductions(reduce_type):
    x = torch.tensor([1.0, 2.0, 3.0], device="xla", requires_grad=True)
    (xf.all_reduce(reduce_type, x) * torch.tensor([1.0, 2.0, 3.0], device="xla")).sum().backward()
    assert x.grad.tolist() == [1, 2, 3]


def test_a_product_with_a_divided_matrix():
    w, x = numbers(2, 3).requires_grad_(True), numbers(3, 4).requires_grad_(True)
    for split in (1, 2):
        y = xf.distributed_mm(w, x, split)
        assert y.tolist() == (w @ x).tolist()
    y.sum().backward()
    assert w.grad.tolist() == x.detach().sum(1).expand(2, 3).tolist()
    with pytest.raises(RuntimeError, match=r"^distributed_mm: x must have 1 \(replicas\) times as many rows as w has "):
        xf.distributed_mm(w, numbers(4, 4))
    with pytest.raises(RuntimeError, match=r"^distributed_mm: the 4 columns of x cannot be split into 3 equal parts$"):
        xf.distributed_mm(w, x, 3)


def test_boxes_that_overlap_little():
    boxes = torch.tensor([[0, 0, 2, 2], [0, 0, 2, 1.8], [0, 1, 2, 3], [5, 5, 6, 6], [2, 2, 0, 0], [9, 9, 9, 9]])
    scores = torch.tensor([0.9, 0.8, 0.7, 0.95, 0.85, 0.1])
    chosen, count = xf.nms(boxes, scores, 0.2, 0.5, 4)
    assert (chosen.tolist(), count.item()) == ([3, 0, 2, 0], 3)
    chosen, count = xf.nms(boxes, scores, torch.tensor(0.0), torch.tensor(0.2), 2)
    assert (chosen.tolist(), count.item()) == ([3, 0], 2)
    with pytest.raises(ValueError, match=r"^nms: output_size must be from 0 to 6, the number of boxes, got 7$"):
        xf.nms(boxes, scores, 0.2, 0.5, 7)
