"""What PyTorch's tests of remote calls expect to be refused, and as what. Workers of jobs of one call themselves."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

import weft as torch
from tests.distributed.refusals import refuses, rows
from weft import nn
from weft.distributed import autograd, rpc
from weft.distributed.nn import RemoteModule
from weft.distributed.optim import DistributedOptimizer
from weft.futures import Future, wait_all

ME = "w0"


def fail(*args):
    raise ValueError("Expected error")


def nothing():
    return None


@rpc.functions.async_execution
def no_future():
    return 3


@rpc.functions.async_execution
def failing():
    raise RuntimeError("Expected error")


def future():
    return Future()


class Held:
    pass


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.scale * x


class Constructed(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=0.1)
        raise ValueError("mine")


def backward(roots: Callable, context=None):
    with autograd.context() as own:
        autograd.backward(own if context is None else context, roots())


def nested():
    with autograd.context(), autograd.context():
        pass


def set_twice():
    made = Future()
    made.set_result(1)
    made.set_result(2)


def then(callback):
    made = Future()
    made.set_result(torch.ones(2))
    made.then(callback).wait()


def mapped(*maps):
    options = rpc.TensorPipeRpcBackendOptions()
    for one in maps:
        options.set_device_map("w1", one)


ALONE = rows(
    ("name", lambda: rpc.WorkerInfo("abc*", 0), RuntimeError, "^Worker name must match"),
    ("no name", lambda: rpc.WorkerInfo("", 0), RuntimeError, "must be non-empty"),
    ("long name", lambda: rpc.WorkerInfo("a" * 500, 0), RuntimeError, "shorter than 128"),
    ("call", lambda: rpc.rpc_sync(ME, nothing), RuntimeError, "^RPC has not been initialized"),
    ("reference", lambda: rpc.RRef(1), RuntimeError, "^Current RPC agent is not set!"),
    ("backend", lambda: rpc.init_rpc(ME, "tensorpipe", 0, 1), TypeError, "must be a member of BackendType"),
    (
        "options",
        lambda: rpc.init_rpc(ME, rpc.BackendType.TENSORPIPE, 0, 1, {"init_method": "x"}),
        TypeError,
        "must be an instance of RpcBackendOptions",
    ),
    (
        "options of no backend",
        lambda: rpc.init_rpc(ME, None, 0, 1, rpc.RpcBackendOptions()),
        TypeError,
        "^Could not infer backend for options",
    ),
    ("timeout", lambda: rpc.TensorPipeRpcBackendOptions(rpc_timeout="x"), TypeError, "^incompatible constructor"),
    ("two targets", lambda: mapped({0: 1}, {0: 0}), ValueError, "only supports 1-to-1 mapping"),
    ("two sources", lambda: mapped({0: 0, 1: 0}), ValueError, "only supports 1-to-1 mapping"),
    ("negative device", lambda: mapped({-1: 0}), RuntimeError, "must not be negative"),
    ("set twice", set_twice, RuntimeError, "^Future can only be marked completed once"),
    ("no exception", lambda: Future().set_exception("x"), AssertionError, "x is of type"),
    ("no callback", lambda: Future().then(None), TypeError, r"incompatible function arguments\."),
    ("callback without argument", lambda: then(nothing), RuntimeError, r"nothing\(\) takes 0 positional arguments"),
    ("callback of a tensor", lambda: then(lambda x: x + 1), RuntimeError, r"unsupported operand type\(s\) for \+"),
    ("callback's error", lambda: then(fail), RuntimeError, "ValueError: Expected error$"),
    ("future in a file", lambda: pickle.dumps(Future()), RuntimeError, "^Can not pickle torch.futures.Future"),
)


@pytest.mark.parametrize(("call", "kinds", "text"), ALONE)
def test_without_a_job(call, kinds, text):
    refuses(call, kinds, text)


JOB = rows(
    ("twice", lambda: rpc.init_rpc("w1", rank=0, world_size=1), RuntimeError, "^RPC is already initialized$"),
    ("unknown worker", lambda: rpc.get_worker_info("unknown"), RuntimeError, "could not find destination"),
    ("unknown number", lambda: rpc.rpc_sync(7, nothing), RuntimeError, "could not find destination"),
    ("no number", lambda: rpc.rpc_sync(0.5, nothing), ValueError, "^Cannot get WorkerInfo from name 0.5"),
    ("no function", lambda: rpc.rpc_sync(ME, None), TypeError, r"^function should be callable\."),
    ("error", lambda: rpc.rpc_async(ME, fail).wait(), ValueError, "Expected error"),
    ("error of a reference", lambda: rpc.remote(ME, fail).to_here(), ValueError, "Expected error"),
    ("errors", lambda: wait_all([rpc.rpc_async(ME, fail) for _ in range(3)]), ValueError, "Expected error"),
    ("arguments", lambda: rpc.rpc_sync(ME, nothing, (10,)), TypeError, "takes 0 positional arguments"),
    (
        "no operands",
        lambda: rpc.rpc_sync(ME, torch.add),
        RuntimeError,
        "Overloaded torch operator .* failed to match",
    ),
    (
        "operands",
        lambda: rpc.remote(ME, torch.add, (1, 2), {"x": 3}).to_here(),
        RuntimeError,
        "failed to match any schema",
    ),
    ("sizes", lambda: rpc.rpc_sync(ME, torch.add, (torch.ones(2), torch.ones(3))), RuntimeError, "size of tensor"),
    ("no future", lambda: rpc.rpc_sync(ME, no_future), RuntimeError, "must return a torch.futures.Future object"),
    ("failing", lambda: rpc.rpc_sync(ME, failing), RuntimeError, "Expected error"),
    ("returned future", lambda: rpc.rpc_sync(ME, future), RuntimeError, "Can not pickle torch.futures.Future"),
    (
        "sent future",
        lambda: rpc.rpc_sync(ME, nothing, (Future(),)),
        RuntimeError,
        "Can not pickle torch.futures.Future",
    ),
    ("method", lambda: rpc.remote(ME, Held).rpc_sync().non_exist(), AttributeError, "has no attribute 'non_exist'"),
    ("type", lambda: rpc.remote(ME, fail)._get_type(), ValueError, "Expected error"),
    ("reference in a file", lambda: pickle.dumps(rpc.RRef(1)), RuntimeError, "^Can not pickle rref in python pickler"),
    ("no gradient", lambda: rpc.RRef(torch.rand(2)).backward(), RuntimeError, "does not require grad"),
    ("vector", lambda: rpc.RRef(torch.rand(2, requires_grad=True)).backward(), RuntimeError, "only for scalar outputs"),
    ("text", lambda: rpc.RRef("foo").backward(), RuntimeError, "^RRef should contain a tensor"),
    ("nested", nested, RuntimeError, "^Already have an autograd context id for this thread"),
    ("no roots", lambda: backward(list), RuntimeError, "No tensors provided for gradient computation"),
    ("None as roots", lambda: backward(lambda: None), TypeError, "incompatible function arguments"),
    ("None as context", lambda: autograd.backward(None, None), TypeError, "incompatible function arguments"),
    ("constant root", lambda: backward(lambda: [torch.rand(1)]), RuntimeError, "requires_grad not set on"),
    ("leaf", lambda: backward(lambda: [torch.rand(1, requires_grad=True)]), RuntimeError, "valid gradient function"),
    (
        "unknown context",
        lambda: autograd.get_gradients(100),
        RuntimeError,
        "^Could not find autograd context with id: 100",
    ),
    (
        "unknown context of a pass",
        lambda: backward(lambda: [torch.rand(1, requires_grad=True).sum()], 100),
        RuntimeError,
        "^Could not find autograd context with id: 100",
    ),
    ("optimizer", lambda: DistributedOptimizer(Constructed, [rpc.RRef(torch.ones(1))]), ValueError, "mine"),
    ("no module", lambda: RemoteModule(f"{ME}/cpu", Held), ValueError, "^(.|\n)*Expect `module_cls"),
    ("kind of device", lambda: RemoteModule(f"{ME}/foo", Scaled), RuntimeError, "^Expected one of .+ device type"),
    ("device", lambda: RemoteModule(f"{ME}/cpu2", Scaled), RuntimeError, "^Invalid device string: 'cpu2'"),
    ("no device", lambda: RemoteModule(f"{ME}/", Scaled), RuntimeError, "^Device string must not be empty"),
    (
        "two devices",
        lambda: RemoteModule(f"{ME}/cpu/cpu", Scaled),
        ValueError,
        "^Could not parse remote_device: w0/cpu/c",
    ),
    ("empty device", lambda: RemoteModule(f"{ME}/cpu/", Scaled), ValueError, "^Could not parse remote_device: w0/cpu/"),
    ("no worker", lambda: RemoteModule("/cpu", Scaled), ValueError, "^Could not parse remote_device: /cpu"),
    ("neither", lambda: RemoteModule("/", Scaled), ValueError, "^Could not parse remote_device: /"),
    *[
        (
            name,
            lambda name=name: getattr(RemoteModule(ME, Scaled), name)(),
            ValueError,
            f"^Method ``{name}`` not supported",
        )
        for name in (
            "parameters",
            "state_dict",
            "to",
            "float",
        )
    ],
    (
        "module in a file",
        lambda: pickle.dumps(RemoteModule(ME, Scaled)),
        RuntimeError,
        "^Cannot pickle RemoteModule in python pickler",
    ),
)


@pytest.mark.parametrize(("call", "kinds", "text"), JOB)
def test_in_a_job(call, kinds, text, job):
    refuses(call, kinds, text)


@pytest.fixture
def job(tmp_path):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store", rpc_timeout=20)
    rpc.init_rpc(ME, rank=0, world_size=1, rpc_backend_options=options)
    yield
    rpc.shutdown(timeout=20)
