"""Cases that two replicas run together. As a program, it starts them and does what the tests say."""

from __future__ import annotations

import os

import numpy as np
import pytest

import weft as torch
import weft.xla.core.xla_model as xm
import weft.xla.distributed.xla_multiprocessing as xmp
import weft.xla.runtime as xr
from tests.distributed.processes import Cases, serve
from tests.xla.host_cases import case as host_case
from weft import nn
from weft.xla.debug import metrics as met

SIZE = 2
case = Cases()


def here(*shape: int) -> torch.Tensor:
    """Numbers that differ between replicas: 0, 1, 2, … and 100 more on each."""
    return torch.arange(float(np.prod(shape))).reshape(shape) + 100 * xr.global_ordinal()


def of_all(*shape: int) -> list[np.ndarray]:
    """`here` of each replica."""
    return [np.arange(float(np.prod(shape))).reshape(shape) + 100 * ordinal for ordinal in range(SIZE)]


def equal(tensor, expected) -> None:
    np.testing.assert_array_equal(tensor.numpy(), expected)


# --- reductions ---


@case
def the_job_is_known():
    assert (xr.world_size(), xr.global_device_count(), xr.process_count(), xr.local_process_count()) == (2, 2, 2, 2)
    assert xr.global_ordinal() == xr.local_ordinal() == xr.process_index() == int(os.environ["RANK"])
    assert (xr.host_index(), xr.addressable_device_count(), xr.global_runtime_device_count()) == (0, 1, 2)
    assert (xr.local_device_count(), xr.addressable_runtime_device_count()) == (2, 1)
    assert xr.get_local_process_index() == xr.global_ordinal()
    assert [held["process"] for held in xr.global_runtime_device_attributes()] == [0, 1]
    assert [held["process"] for held in xr.local_device_attributes()] == [xr.global_ordinal()]
    assert (xr.device_type(), xr.get_master_ip(), xr.using_pjrt()) == ("CPU", "127.0.0.1", True)
    assert xm.is_master_ordinal() is (xr.global_ordinal() == 0)
    with pytest.raises(AssertionError, match=r"^Can't change device type after PJRT client is initialized$"):
        xr.set_device_type("TPU")


@case
def all_reduce_of_a_tensor_is_a_new_tensor():
    x = here(2, 3)
    a, b = of_all(2, 3)
    equal(xm.all_reduce(xm.REDUCE_SUM, x), a + b)
    equal(xm.all_reduce(xm.REDUCE_SUM, x, scale=0.5), (a + b) / 2)
    equal(xm.all_reduce(xm.REDUCE_MUL, x), a * b)
    equal(xm.all_reduce(xm.REDUCE_MIN, x), np.minimum(a, b))
    equal(xm.all_reduce(xm.REDUCE_MAX, x), np.maximum(a, b))
    equal(x, (a, b)[xr.global_ordinal()])


@case
def logical_reductions():
    x = here(4).int()
    a, b = (part.astype(np.int32) for part in of_all(4))
    equal(xm.all_reduce(xm.REDUCE_AND, x), a & b)
    equal(xm.all_reduce(xm.REDUCE_OR, x), a | b)
    flags = torch.tensor([True, xr.global_ordinal() == 0, False])
    assert xm.all_reduce(xm.REDUCE_AND, flags).tolist() == [True, False, False]
    assert xm.all_reduce(xm.REDUCE_OR, flags).tolist() == [True, True, False]


@case
def all_reduce_of_a_list_is_in_place():
    tensors = [here(3), here(2, 2)]
    assert xm.all_reduce(xm.REDUCE_SUM, tensors, scale=0.5) is tensors
    for tensor in tensors:
        equal(tensor, sum(of_all(*tensor.shape)) / 2)


@case
def scalars_empty_tensors_and_half_precision():
    ordinal = xr.global_ordinal()
    assert xm.all_reduce(xm.REDUCE_SUM, torch.tensor(ordinal + 1.0)).item() == 3
    assert xm.all_reduce(xm.REDUCE_SUM, torch.zeros(0, 3)).shape == (0, 3)
    half = xm.all_reduce(xm.REDUCE_SUM, torch.tensor([1.0, 1e-3 * (ordinal + 1)], dtype=torch.bfloat16))
    assert half.dtype is torch.bfloat16
    assert half[0].item() == 2


@case
def groups_of_one_replica_move_nothing():
    x, groups = here(4), [[0], [1]]
    equal(xm.all_reduce(xm.REDUCE_SUM, x, groups=groups), of_all(4)[xr.global_ordinal()])
    equal(xm.all_gather(x, groups=groups), of_all(4)[xr.global_ordinal()])
    equal(xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, 1, groups=groups), of_all(4)[xr.global_ordinal()])


# --- other collectives ---


@case
def all_gather_joins_along_a_dim():
    x = here(2, 3)
    for dim in (0, 1, -1):
        equal(xm.all_gather(x, dim), np.concatenate(of_all(2, 3), dim))
    output = torch.zeros(4, 3)
    assert xm.all_gather(x, output=output) is output
    equal(output, np.concatenate(of_all(2, 3)))
    first, second = xm.all_gather([here(2), here(1, 2)], pin_layout=False)
    equal(first, np.concatenate(of_all(2)))
    equal(second, np.concatenate(of_all(1, 2)))


@case
def reduce_scatter_gives_each_replica_a_part():
    x = here(4, 2)
    whole, ordinal = sum(of_all(4, 2)), xr.global_ordinal()
    equal(xm.reduce_scatter(xm.REDUCE_SUM, x, 0.5, 0, 2), np.split(whole / 2, 2)[ordinal])
    equal(xm.reduce_scatter(xm.REDUCE_MAX, x, 1.0, 1, 2), np.split(np.maximum(*of_all(4, 2)), 2, 1)[ordinal])
    listed = xm.reduce_scatter(xm.REDUCE_SUM, [x, here(2)], 1.0, 0, 2, pin_layout=False)
    equal(listed[1], np.split(sum(of_all(2)), 2)[ordinal])


@case
def all_to_all_exchanges_parts():
    x = here(4, 2)
    a, b = of_all(4, 2)
    mine = slice(2 * xr.global_ordinal(), 2 * xr.global_ordinal() + 2)
    equal(xm.all_to_all(x, 0, 1, 2), np.concatenate([a[mine], b[mine]], 1))
    equal(xm.all_to_all(x, 0, 0, 2), np.concatenate([a[mine], b[mine]], 0))


@case
def permute_and_broadcast():
    a, b = of_all(3)
    equal(xm.collective_permute(here(3), [[0, 1], [1, 0]]), (b, a)[xr.global_ordinal()])
    equal(xm.collective_permute(here(3), [[0, 1]]), (np.zeros(3), a)[xr.global_ordinal()])
    tensors = [here(3), torch.tensor([float("nan"), 1.0]) if xr.global_ordinal() else torch.tensor([1.0, float("inf")])]
    assert xm.collective_broadcast(tensors, root_ordinal=0) is None
    equal(tensors[0], a)
    equal(tensors[1], [1, np.inf])


@case
def buckets_give_what_single_calls_give():
    tensors = [here(n, 2) for n in (2, 4, 6)]
    for found, tensor in zip(xm.all_gather_bucketized(tensors, bucket_cap_mb=1), tensors, strict=True):
        equal(found, xm.all_gather(tensor).numpy())
    scattered = xm.reduce_scatter_bucketized(xm.REDUCE_SUM, tensors, 1.0, 0, 2)
    for found, tensor in zip(scattered, tensors, strict=True):
        equal(found, xm.reduce_scatter(xm.REDUCE_SUM, tensor, 1.0, 0, 2).numpy())


@case
def a_sum_has_a_derivative():
    x = here(3).requires_grad_(True)
    (xm.all_reduce(xm.REDUCE_SUM, x) * torch.arange(3.0)).sum().backward()
    equal(x.grad, 2 * np.arange(3.0))
    gathered = here(2).requires_grad_(True)
    (xm.all_gather(gathered) * torch.arange(4.0)).sum().backward()
    equal(gathered.grad, 2 * np.arange(4.0)[2 * xr.global_ordinal() :][:2])
    scattered = here(4).requires_grad_(True)
    (xm.reduce_scatter(xm.REDUCE_SUM, scattered, 0.5, 0, 2) * (xr.global_ordinal() + 1)).sum().backward()
    equal(scattered.grad, [0.5, 0.5, 1, 1])


@case
def other_reductions_have_no_derivative():
    x = here(4).requires_grad_(True)
    for name, result in {
        "all_reduce": xm.all_reduce(xm.REDUCE_MAX, x),
        "reduce_scatter": xm.reduce_scatter(xm.REDUCE_MAX, x, 1.0, 0, 2),
    }.items():
        with pytest.raises(
            RuntimeError,
            match=rf"^{name}: backward\(\) has come to a reduction 'max' over replicas\. Only sums and averages have a "
            rf"derivative: .* Detach the input, as in {name}\(\.\.\., x\.detach\(\), \.\.\.\); for the gradient of",
        ):
            result.sum().backward()
    assert not xm.all_reduce(xm.REDUCE_MAX, x.detach()).requires_grad


@case
def messages_by_channel():
    x = here(2, 3)
    if xr.global_ordinal() == 0:
        assert xm.send(x, 7) is x
        xm.send(x + 1, 7)
        xm.send(x, 8)
    else:
        output = torch.zeros(2, 3)
        assert xm.recv(output, 7) is output
        equal(output, of_all(2, 3)[0])
        equal(xm.recv(output, 7), of_all(2, 3)[0] + 1)
        with pytest.raises(RuntimeError, match=r"^recv: channel 8 has sent 24 bytes, and a torch.float32 of size "):
            xm.recv(torch.zeros(2), 8)


# --- mistakes ---


@case
def mistakes_are_told():
    x = here(4)
    with pytest.raises(ValueError, match=r"^a reduction is one of sum, mul, and, or, min, max, got 'mean'$"):
        xm.all_reduce("mean", x)
    with pytest.raises(AssertionError, match=r"^Replica groups must have the same number of replicas/shards\.$"):
        xm.all_gather(x, groups=[[0, 1], [1]])
    with pytest.raises(ValueError, match=r"^groups must have each ordinal from 0 to 1 once, got \[\[0, 2\]\]$"):
        xm.all_reduce("sum", x, groups=[[0, 2]])
    with pytest.raises(RuntimeError, match=r"^For xm\.all_gather with list of tensors input, pin_layout=True is not"):
        xm.all_gather([x])
    with pytest.raises(RuntimeError, match=r"^For xm\.all_gather_bucketized, pin_layout=True is not yet supported\.$"):
        xm.all_gather_bucketized([x], pin_layout=True)
    with pytest.raises(
        TypeError, match=r"^`value` needs to be a Tensor or a list of Tensors, but given <class 'int'>\.$"
    ):
        xm.all_gather(3)
    with pytest.raises(
        TypeError, match=r"^`input` needs to be a Tensor or a list of Tensors, but given <class 'int'>\.$"
    ):
        xm.reduce_scatter("sum", 3, 1.0, 0, 2)
    with pytest.raises(TypeError, match=r"^`output` needs to be a list of Tensors, but given <class 'int'>\.$"):
        xm.all_gather([x], output=3, pin_layout=False)
    with pytest.raises(ValueError, match=r"^`output` length doesn't match `input` length: 1 vs 2\.$"):
        xm.all_gather([x, x], output=[x], pin_layout=False)
    with pytest.raises(
        ValueError, match=r"^reduce_scatter: shard_count must be the number of replicas of a group, 2, got 3"
    ):
        xm.reduce_scatter("sum", x, 1.0, 0, 3)
    with pytest.raises(RuntimeError, match=r"dim 0 of a tensor of size \[3\] cannot be split into 2 equal parts$"):
        xm.all_to_all(here(3), 0, 0, 2)
    with pytest.raises(ValueError, match=r"^collective_permute: each ordinal from 0 to 1 may be a source once and a"):
        xm.collective_permute(x, [[0, 1], [0, 0]])
    with pytest.raises(ValueError, match=r"^collective_broadcast: there is no ordinal 2 among 2$"):
        xm.collective_broadcast([x], root_ordinal=2)


# --- steps ---


def trained(ordinal: int, size: int, steps: int = 3, **options) -> tuple[list[np.ndarray], list[float]]:
    """The weights and losses of a model that is trained on a part of each batch."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    data = torch.arange(8 * 6.0).reshape(8, 6).sin()
    target = data.sum(1, keepdim=True)
    part = slice(ordinal, None, size)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data[part]), target[part])
        loss.backward()
        if size > 1:
            xm.optimizer_step(optimizer, **options)
            losses.append(xm.all_reduce(xm.REDUCE_SUM, loss.detach(), scale=1 / size))
        else:
            optimizer.step()
            losses.append(loss.detach())
        xm.mark_step()
    return [p.detach().numpy() for p in model.parameters()], [loss.item() for loss in losses]


@case
def replicas_train_as_one_process():
    weights, losses = trained(xr.global_ordinal(), SIZE, barrier=True)
    expected, plain = trained(0, 1)
    np.testing.assert_allclose(losses, plain, rtol=1e-5)
    for ours, theirs in zip(weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@case
def gradients_are_averaged_in_place():
    weight = torch.ones(2).requires_grad_(True)
    optimizer = torch.optim.SGD([weight, torch.ones(1).requires_grad_(True)], lr=0.5)
    (weight * (xr.global_ordinal() + 1)).sum().backward()
    (gradient,) = xm._fetch_gradients(optimizer)
    xm.reduce_gradients(optimizer)
    assert weight.grad.tolist() == gradient.tolist() == [1.5, 1.5]
    xm.all_reduce_bucketized_gradients([weight.grad], 2.0, None, True)
    assert weight.grad.tolist() == [6, 6]


@case
def buckets_of_gradients_change_nothing():
    plain, _ = trained(xr.global_ordinal(), SIZE)
    os.environ["ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB"] = "1"
    try:
        bucketized, _ = trained(xr.global_ordinal(), SIZE)
    finally:
        del os.environ["ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB"]
    for ours, theirs in zip(bucketized, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@case
def a_step_is_one_program_that_holds_its_collectives():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = here(3, 4)
    xm.mark_step()
    before = len(torch.explain())
    model(x).square().mean().backward()
    xm.optimizer_step(optimizer)
    text = xm.get_stablehlo()
    assert text.count("stablehlo.all_reduce") == 2
    assert "stablehlo.dot_general" in text
    xm.mark_step()
    assert len(torch.explain()) == before + 1


@case
def a_compiled_function_may_hold_collectives():
    @torch.compile
    def step(x):
        return xm.all_reduce(xm.REDUCE_SUM, (x * 2).sin()).sum()

    a, b = (np.sin(2 * part) for part in of_all(3))
    for _ in range(3):
        assert step(here(3)).item() == pytest.approx((a + b).sum(), rel=1e-5)


@case
def collectives_keep_their_order_where_the_rest_of_a_program_differs():
    inputs = [here(4, 4) + n for n in range(4)]
    xm.mark_step()
    parts = [xm.all_reduce(xm.REDUCE_MAX, x) for x in inputs]
    weighted = [(n + 1) * part for n, part in enumerate(parts)]
    total = sum(weighted if xr.global_ordinal() else weighted[::-1])
    del parts, weighted
    xm.mark_step()
    equal(total, sum((n + 1) * (of_all(4, 4)[1] + n) for n in range(4)))


@case
def a_value_that_only_one_replica_computes():
    total = xm.all_reduce(xm.REDUCE_SUM, here(3))
    gathered = xm.all_gather(total * 2)
    if xr.global_ordinal():
        logged = total.mean() + 1
    before = met.counter_value("DifferentPrograms") or 0
    xm.mark_step()
    assert met.counter_value("DifferentPrograms") == before + 1
    equal(gathered, np.tile(2 * sum(of_all(3)), 2))
    if xr.global_ordinal():
        assert not logged._read().is_pending
        assert logged.item() == sum(of_all(3)).mean() + 1


@case
def compiled_functions_that_differ_have_one_collective():
    own = torch.neg if xr.global_ordinal() else torch.square
    one = torch.compile(lambda x: own(xm.all_reduce(xm.REDUCE_SUM, x)))
    equal(one(here(2)), own(torch.tensor(sum(of_all(2)))).numpy())
    two = torch.compile(lambda x: xm.all_reduce(xm.REDUCE_SUM, x) + own(xm.all_reduce(xm.REDUCE_MAX, x)))
    two(here(2)).tolist()  # as it is recorded
    with pytest.raises(
        RuntimeError, match=r"^the replicas have compiled different functions that have several collectives each"
    ):
        two(here(2)).tolist()


@case
def parameters_are_broadcast():
    torch.manual_seed(xr.global_ordinal())
    model = nn.BatchNorm1d(3)
    model.weight.data.uniform_()
    model.running_mean.add_(xr.global_ordinal())
    xm.broadcast_master_param(model)
    both = xm.all_gather(torch.stack([model.weight.detach(), model.running_mean]))
    equal(both[:2], both[2:].numpy())
    assert not model.running_mean.any()


# --- the host ---


@case
def payloads_are_exchanged():
    ordinal = xr.global_ordinal()
    assert xm.rendezvous("r", b"x" * ordinal) == [b"", b"x"]
    assert xm.mesh_reduce("m", ordinal + 1, sum) == 3
    assert xm.mesh_reduce("m", torch.tensor([ordinal]), lambda parts: torch.cat(parts).tolist()) == [0, 1]
    result = xm.do_on_ordinals(lambda x: x.sum().item(), (torch.ones(2),), ordinals=(1,))
    assert result == (2.0 if ordinal == 1 else None)


def _serve(ordinal: int) -> None:
    serve(f"replica {ordinal}", {function.__name__: function for function in [*case, *host_case]})


if __name__ == "__main__":
    xmp.spawn(_serve, nprocs=SIZE)
