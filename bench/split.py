"""A model whose first half is on another worker: a training iteration with distributed autograd."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from bench.workloads import earning

_WIDTH, _BATCH = 256, 32


def half(name: str) -> Any:
    """Two linear layers of a framework."""
    nn = importlib.import_module(name).nn
    return nn.Sequential(*(layer for _ in range(2) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.Tanh())))


def parameters(name: str, module: Any) -> list[Any]:
    """References to the parameters of a module on this worker."""
    rpc = importlib.import_module(f"{name}.distributed.rpc")
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]


def iteration(name: str, peer: str) -> Callable[[], None]:
    """A whole iteration: forward, backward, and a step of SGD on both workers."""
    framework = importlib.import_module(name)
    rpc = importlib.import_module(f"{name}.distributed.rpc")
    autograd = importlib.import_module(f"{name}.distributed.autograd")
    optim = importlib.import_module(f"{name}.distributed.optim")
    there, here = rpc.remote(peer, half, args=(name,)), half(name)
    references = rpc.rpc_sync(peer, parameters, args=(name, there)) + [rpc.RRef(p) for p in here.parameters()]
    optimizer = optim.DistributedOptimizer(framework.optim.SGD, references, lr=0.01)
    x, y = framework.randn(_BATCH, _WIDTH), framework.randn(_BATCH, _WIDTH)

    def run() -> None:
        with autograd.context() as context_id:
            loss = framework.nn.functional.mse_loss(here(there.rpc_sync().forward(x)), y)
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)

    while name == "weft" and _is_interpreted(run, peer):
        pass
    return run


def _is_interpreted(run: Callable[[], None], peer: str) -> bool:
    """Whether an iteration runs a program, on either worker, that will be compiled when it has run more often."""
    rpc = importlib.import_module("weft.distributed.rpc")
    before = earning(), rpc.rpc_sync(peer, earning)
    run()
    return (earning(), rpc.rpc_sync(peer, earning)) != before
