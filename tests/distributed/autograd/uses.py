"""Cases of contexts, passes, remote modules and distributed optimizers, and programs in which a worker dies."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys

import pytest

import weft as torch
from tests.distributed.processes import Cases
from tests.distributed.rpc import job
from tests.distributed.rpc.leaks import nothing_is_left
from tests.waiting import until
from weft import nn
from weft.distributed import autograd, rpc
from weft.distributed.nn.api.remote_module import RemoteModule
from weft.distributed.optim import DistributedOptimizer
from weft.distributed.rpc._state import current_agent

case = Cases()
_kept = {}


def twice(x):
    return 2 * x


def make(name, *numbers):
    _kept[name] = torch.tensor(numbers, requires_grad=True)
    return rpc.RRef(_kept[name])


def product(name, x):
    return (_kept[name] * x).sum()


def look(name):
    kept = _kept[name]
    return kept.tolist(), None if kept.grad is None else kept.grad.tolist()


def hooked(name, x):
    y = _kept[name] * x
    y.register_hook(lambda grad: 10 * grad)
    return y.sum()


def contexts():
    gc.collect()
    return len(current_agent().contexts)


def kinds(x):
    return type(x).__name__, x.is_leaf, type(x.grad_fn).__name__


def nest(to, x):
    return rpc.rpc_sync(to, twice, (x,)) + rpc.rpc_async(to, twice, (x,)).wait()


@rpc.functions.async_execution
def chain(to, x):
    return rpc.rpc_async(to, twice, (x,)).then(lambda done: rpc.rpc_sync(to, twice, (done.wait(),)))


class Breaking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ArithmeticError("no derivative")


class Deadly(Breaking):
    @staticmethod
    def backward(ctx, grad):
        os.kill(os.getpid(), signal.SIGKILL)


def broken(x):
    return Breaking.apply(x).sum()


def deadly(x):
    return Deadly.apply(x).sum()


def leaf(*numbers):
    return torch.tensor(numbers, requires_grad=True)


# --- contexts and passes ---


@case
def gradients_are_kept_in_the_context_and_not_at_the_leaves():
    """The example of the specification."""
    t1, t2 = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("w1", torch.add, (t1, t2)).sum()
        autograd.backward(context_id, [loss])
        found = autograd.get_gradients(context_id)
    assert found.keys() == {t1, t2}
    assert all(torch.equal(grad, torch.ones(3, 3)) for grad in found.values())
    assert t1.grad is None


@case
def a_tensor_keeps_its_history_in_a_context_alone():
    x = leaf(1.0, 2.0)
    with autograd.context():
        assert rpc.rpc_sync("w1", kinds, (x,)) == ("Tensor", False, "RecvRpcBackward")
        with torch.no_grad():
            assert rpc.rpc_sync("w1", kinds, (x,)) == ("Tensor", True, "NoneType")
    assert rpc.rpc_sync("w1", kinds, (x,)) == ("Tensor", True, "NoneType")


@case
def a_pass_goes_back_through_calls_of_all_kinds():
    x = leaf(1.0, 2.0)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("w1", nest, ("w2", x)) + rpc.rpc_sync("w1", chain, ("w0", x))
        y = y + rpc.remote("w2", twice, (x,)).to_here() + rpc.RRef(x).rpc_sync().mul(3)
        autograd.backward(context_id, y.sum())
        assert autograd.get_gradients(context_id)[x].tolist() == [13, 13]


@case
def passes_in_one_context_add_up_and_hooks_run():
    x = leaf(1.0, 2.0)
    rpc.rpc_sync("w1", make, ("a", 3.0, 4.0))
    with autograd.context() as context_id:
        first = rpc.rpc_sync("w1", product, ("a", x))
        second = rpc.rpc_sync("w1", hooked, ("a", x))
        autograd.backward(context_id, [first], retain_graph=True)
        autograd.backward(context_id, [first])
        autograd.backward(context_id, [second])
        assert autograd.get_gradients(context_id)[x].tolist() == [36, 48]
        assert rpc.rpc_sync("w1", gradient, ("a", context_id)) == [12, 24]
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            autograd.backward(context_id, [second])
    assert rpc.rpc_sync("w1", look, ("a",)) == ([3, 4], None)


@case
def a_reference_begins_a_pass_in_a_context():
    x = leaf(1.0, 2.0)
    rpc.rpc_sync("w1", make, ("a", 3.0, 4.0))
    with autograd.context() as context_id:
        owned = rpc.remote("w1", product, ("a", x))
        with pytest.raises(RuntimeError, match="User RRefs require 'dist_autograd_ctx_id' to be specified"):
            owned.backward()
        owned.backward(context_id, retain_graph=True)
        assert autograd.get_gradients(context_id)[x].tolist() == [3, 4]
        total = rpc.RRef(owned.to_here() * 2)
        total.backward(context_id)
        assert autograd.get_gradients(context_id)[x].tolist() == [9, 12]


@case
def a_reference_to_a_value_here_begins_a_pass_without_a_context():
    x = leaf(1.0, 2.0)
    rpc.RRef((x * x).sum()).backward()
    assert x.grad.tolist() == [2, 4]


def gradient(name, context_id):
    return autograd.get_gradients(context_id)[_kept[name]].tolist()


# --- what a pass refuses ---


@case
def a_context_that_there_is_not_is_refused():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"^Could not find autograd context with id: 12345$"):
        autograd.backward(12345, [x.sum()])
    with autograd.context() as context_id:
        pass
    with pytest.raises(RuntimeError, match=r"^Could not find autograd context with id: "):
        autograd.get_gradients(context_id)


@case
def roots_that_cannot_be_are_refused():
    x = leaf(1.0, 2.0)
    with autograd.context() as context_id:
        for roots, text in (
            ([2 * x], r"shape \[2\] is not a scalar, all roots need to be scalar"),
            ([], r"^No tensors provided for gradient computation\.$"),
            ([torch.ones(())], "^requires_grad not set on root$"),
            ([torch.ones((), requires_grad=True)], "does not have a valid gradient function"),
        ):
            with pytest.raises(RuntimeError, match=text):
                autograd.backward(context_id, roots)


@case
def arguments_of_a_pass_that_cannot_be_are_refused():
    x = leaf(1.0, 2.0)
    with autograd.context() as context_id:
        with pytest.raises(TypeError, match="context_id must be an int, as context"):
            autograd.backward("1", [x.sum()])
        with pytest.raises(ValueError, match="mode must be 'fast' or 'smart', but got 'quick'"):
            autograd.backward(context_id, [x.sum()], mode="quick")


@case
def a_thread_has_one_context_at_a_time():
    with (
        autograd.context(),
        pytest.raises(RuntimeError, match=r"^Already have an autograd context id for this thread\.$"),
        autograd.context(),
    ):
        pass


@case
def what_came_in_a_context_takes_part_in_its_passes_alone():
    x = leaf(1.0, 2.0)
    with autograd.context():
        come = rpc.rpc_sync("w1", twice, (x,))
        with pytest.raises(
            RuntimeError, match=r"came from WorkerInfo\(id=1, name=w1\) in a context of distributed aut"
        ):
            come.sum().backward()
    with (
        autograd.context() as context_id,
        pytest.raises(RuntimeError, match="in another context of distributed autograd"),
    ):
        autograd.backward(context_id, [(come + rpc.rpc_sync("w1", twice, (x,))).sum()])


@case
def fast_mode_needs_something_of_each_message():
    x = leaf(1.0, 2.0)
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("w1", twice, (x,)).sum()
        rpc.rpc_sync("w1", twice, (x,))
        with pytest.raises(
            RuntimeError, match=r"^FAST mode needs gradients .* none came for 1 of WorkerInfo\(id=1, name=w1\)"
        ):
            autograd.backward(context_id, [loss], mode="fast")


# --- programs in which a worker dies ---


def failures():
    x = leaf(1.0, 2.0)
    for mode in ("fast", "smart"):
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("w1", nest, ("w2", x)).sum() + rpc.rpc_sync("w2", broken, (x,))
            with pytest.raises(
                RuntimeError, match=r"^On WorkerInfo\(id=2, name=w2\):\nGradientError\('Error on Node 2: no"
            ):
                autograd.backward(context_id, [loss], mode=mode)
        nothing_is_left("w1", "w2")
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("w1", nest, ("w2", x)).sum() + rpc.rpc_sync("w2", deadly, (x,))
        with pytest.raises(RuntimeError, match="worker w2 was lost while"):
            autograd.backward(context_id, [loss])
    nothing_is_left("w1")
    with pytest.raises(RuntimeError, match="worker w2 ended without completing shutdown"):
        rpc.shutdown()
    print(job.PASSED, flush=True)
    sys.exit()


def abandoned():
    """Contexts of a worker that has died are given up by the others."""
    rpc.rpc_async("w1", open_and_wait, ("w2",))
    until(lambda: rpc.rpc_sync("w2", contexts), "w2 has no context")
    with pytest.raises(RuntimeError, match="was lost"):
        rpc.rpc_sync("w1", os.kill, (rpc.rpc_sync("w1", os.getpid), signal.SIGKILL))
    nothing_is_left("w2")
    with pytest.raises(RuntimeError, match="worker w1 ended without completing shutdown"):
        rpc.shutdown()
    print(job.PASSED, flush=True)
    sys.exit()


def open_and_wait(to):
    with autograd.context():
        rpc.rpc_sync(to, twice, (leaf(1.0),))
        signal.pause()  # until it is killed


def call(module, x):
    return module(x)


# --- remote modules ---


def linear():
    return RemoteModule("w1/cpu", nn.Linear, args=(20, 30)), torch.rand(128, 20)


@case
def a_remote_module_is_called_in_three_ways():
    remote, x = linear()
    assert remote(x).shape == remote.forward_async(x).wait().shape == remote.forward(input=x).shape == (128, 30)


@case
def a_remote_module_tells_where_it_is_and_what_parameters_it_has():
    remote, _ = linear()
    assert repr(remote) == "RemoteModule(w1/cpu)"
    assert remote.on == "w1"
    assert remote.get_module_rref().owner_name() == "w1"
    assert [one.to_here().shape for one in remote.remote_parameters()] == [(30, 20), (30,)]


@case
def arguments_that_the_module_does_not_take_are_told():
    remote, _ = linear()
    with pytest.raises(TypeError, match=r"^RemoteModule\(w1/cpu\): Linear\.forward\(input\): too many positional arg"):
        remote(1, 2, 3)
    with pytest.raises(TypeError, match="missing a required argument: 'input'"):
        remote()


@case
def a_remote_module_is_sent_to_other_workers():
    remote, x = linear()
    assert torch.equal(rpc.rpc_sync("w2", call, (remote, x)), remote(x))
    with pytest.raises(RuntimeError, match=r"^Cannot pickle RemoteModule in python pickler\. RemoteModule can only be"):
        pickle.dumps(remote)


@case
def a_remote_module_is_made_from_a_reference():
    """Wherever it is said to be, it is at the reference's owner."""
    remote, x = linear()
    for place in ("rank:1", "w2"):
        again = RemoteModule.init_from_module_rref(place, remote.get_module_rref())
        assert again.on == "w1"
        assert torch.equal(again(x), remote(x))


@case
def a_remote_module_refuses_what_needs_the_module_here():
    remote, _ = linear()
    for name in ("to", "state_dict", "named_parameters", "cuda"):
        with pytest.raises(ValueError, match=f"^Method ``{name}`` not supported for RemoteModule$"):
            getattr(remote, name)()
    with pytest.raises(
        ValueError, match=r"^Method ``parameters`` not supported .* Please use ``remote_parameters`` ins"
    ):
        remote.parameters()


@case
def a_remote_module_that_cannot_be_made_is_told():
    with pytest.raises(ValueError, match=r"Expect `module_cls\(\*args, \*\*kwargs\)` returns an instance of <class nn"):
        RemoteModule("w1", dict)
    for place, kind, text in (
        ("w1/cpu/x", ValueError, "Could not parse remote_device: w1/cpu/x"),
        ("", ValueError, "Could not parse remote_device: "),
        ("rank:x", ValueError, "Could not parse remote_device: rank:x"),
        ("nope", RuntimeError, "could not find destination name nope"),
        ("w1/foo", RuntimeError, "device type at start of device string: foo"),
    ):
        with pytest.raises(kind, match=text):
            RemoteModule(place, nn.Linear, args=(1, 1))


@case
def a_remote_module_is_set_to_evaluate():
    x, dropping = torch.rand(128, 20), RemoteModule("w2", nn.Dropout, args=(0.5,))
    assert not dropping.eval().training
    assert torch.equal(dropping(x), x)


@case
def a_remote_module_is_a_part_of_a_module_here():
    remote, x = linear()
    whole = nn.Sequential(remote, nn.Linear(30, 2))
    assert len(list(whole.parameters())) == 2
    assert whole(x).shape == (128, 2)


# --- distributed optimizers ---


@case
def an_optimizer_steps_parameters_where_they_are():
    parameter = rpc.remote("w1", make, ("p", 1.0, 1.0)).to_here()
    optimizer = DistributedOptimizer(torch.optim.SGD, [parameter], lr=0.5)
    with autograd.context() as context_id:
        loss = parameter.to_here().sum()
        autograd.backward(context_id, [loss])
        optimizer.step(context_id)
    assert rpc.rpc_sync("w1", look, ("p",)) == ([0.5, 0.5], None)
    with pytest.raises(RuntimeError, match=r"^Could not find autograd context with id: 999$"):
        optimizer.step(999)


@case
def an_optimizer_that_cannot_be_made_is_told():
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        DistributedOptimizer(torch.optim.SGD, [], lr=0.5)
    with pytest.raises(TypeError, match=r"takes references to parameters \(RRef\), but got Tensor; wrap"):
        DistributedOptimizer(torch.optim.SGD, [torch.ones(2)], lr=0.5)
    parameter = rpc.remote("w1", make, ("p", 1.0, 1.0)).to_here()
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        DistributedOptimizer(torch.optim.SGD, [parameter], lr=-1)


@case
def training_is_that_of_one_process():
    """A model in three parts, with momentum, in float64."""
    torch.manual_seed(0)
    parts = [RemoteModule(to, Layer, (seed,)) for seed, to in enumerate(("w1", "w2"))]
    here, alone = Layer(2), nn.Sequential(Layer(0), Layer(1), Layer(2))
    references = [*parts[0].remote_parameters(), *parts[1].remote_parameters(), *map(rpc.RRef, here.parameters())]
    optimizer = DistributedOptimizer(torch.optim.Adam, references, lr=0.1)
    single = torch.optim.Adam(alone.parameters(), lr=0.1)
    x = torch.rand(5, 4, dtype=torch.float64)
    for _ in range(4):
        with autograd.context() as context_id:
            loss = here(parts[1](parts[0](x))).square().mean()
            autograd.backward(context_id, [loss], mode="fast")
            optimizer.step(context_id)
        single.zero_grad()
        expected = alone(x).square().mean()
        expected.backward()
        single.step()
        assert abs(loss.item() - expected.item()) < 1e-14


class Layer(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.linear = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, x):
        return self.linear(x).tanh()


if __name__ == "__main__":
    job.main(case, failures=failures, abandoned=abandoned)
