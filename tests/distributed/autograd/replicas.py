"""Replicas within contexts of distributed autograd: their gradients there are averages, those elsewhere are sums."""

from __future__ import annotations

import tempfile

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.processes import Cases
from tests.distributed.rpc import job
from weft import nn
from weft.distributed import autograd, rpc
from weft.distributed.algorithms.ddp_comm_hooks import default_hooks
from weft.distributed.nn import RemoteModule
from weft.distributed.optim import DistributedOptimizer
from weft.nn.parallel import DistributedDataParallel as DDP

case = Cases()


def linear(seed, *sizes):
    torch.manual_seed(seed)
    return nn.Linear(*sizes, dtype=torch.float64)


def inputs(number):
    """A replica's batch."""
    return torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(number))


class Model(nn.Module):
    """A linear map on another worker between two replicated ones."""

    def __init__(self, middle, wrap):
        super().__init__()
        self.first, self.middle, self.last = wrap(linear(0, 4, 5)), middle, wrap(linear(2, 5, 3))

    def forward(self, x):
        return self.last(self.middle(self.first(x).tanh()).tanh())


def train(middle, meeting, number, mode, hook):
    """Three steps of a replica; returns its gradients in the first context, and its parameters in the end."""
    dist.init_process_group(init_method=meeting, rank=number, world_size=2)
    model = Model(middle, DDP)
    replicated = [*model.first.parameters(), *model.last.parameters()]
    if hook:
        for part in (model.first, model.last):
            part.register_comm_hook(None, default_hooks.allreduce_hook)
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(p) for p in replicated], lr=0.1)
    grads = []
    for _ in range(3):
        with autograd.context() as context_id:
            loss = model(inputs(number)).square().mean()
            autograd.backward(context_id, [loss], mode=mode)
            found = autograd.get_gradients(context_id)
            grads.append([found[p] for p in replicated])
            assert found.keys() == set(replicated)
            assert all(p.grad is None for p in replicated)
            optimizer.step(context_id)
    dist.destroy_process_group()
    return grads[0], [p.detach() for p in replicated]


def expected(middle):
    """The same in one process: the mean of both batches' losses."""
    model = Model(middle, lambda module: module)
    parameters = [*model.first.parameters(), *model.last.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    grads = []
    for _ in range(3):
        optimizer.zero_grad()
        sum(model(inputs(number)).square().mean() / 2 for number in range(2)).backward()
        grads.append([p.grad.clone() for p in parameters])
        optimizer.step()
    return grads[0], [p.detach() for p in parameters]


@case
def gradients_of_replicas_are_averages():
    """Also where the replicated part comes before the remote one, whose gradients another thread brings."""
    middle = RemoteModule("w2", linear, (1, 5, 5))
    wanted = expected(linear(1, 5, 5))
    for mode, hook in (("smart", False), ("fast", False), ("smart", True)):
        meeting = f"file://{tempfile.mkdtemp()}/store"
        calls = [rpc.rpc_async(f"w{number}", train, (middle, meeting, number, mode, hook)) for number in range(2)]
        for found in torch.futures.wait_all(calls):
            for mine, theirs in zip(found, wanted, strict=True):
                for one, other in zip(mine, theirs, strict=True):
                    assert torch.allclose(one, other, rtol=1e-12, atol=0)


def train_without_bias(number, meeting):
    dist.init_process_group(init_method=meeting, rank=number, world_size=2)
    model = DDP(nn.Linear(2, 2))
    with (
        autograd.context() as context_id,
        pytest.raises(RuntimeError, match="parameters without a gradient in this backward pass: bias"),
    ):
        autograd.backward(context_id, [rpc.rpc_sync("w2", twice, (used(model),)).sum()])
    with autograd.context() as context_id:
        autograd.backward(context_id, [rpc.rpc_sync("w2", twice, (model(torch.ones(1, 2)),)).sum()])
        grads = autograd.get_gradients(context_id)
    assert all(p.grad is None for p in model.parameters())
    dist.destroy_process_group()
    return [grads[p].tolist() for p in model.parameters()]


def used(model):
    model(torch.ones(1, 2))
    return model.module.weight * 2


def twice(x):
    return 2 * x


@case
def a_parameter_without_a_gradient_is_told_where_the_pass_began():
    """The next pass is none the worse."""
    meeting = f"file://{tempfile.mkdtemp()}/store"
    calls = [rpc.rpc_async(f"w{number}", train_without_bias, (number, meeting)) for number in range(2)]
    assert torch.futures.wait_all(calls) == [[[[2, 2], [2, 2]], [2, 2]]] * 2


if __name__ == "__main__":
    job.main(case)
