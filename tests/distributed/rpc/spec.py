"""The examples of the reference texts of remote calls, on workers `worker0` to `worker2`.

`python -m … cases RANK SIZE ADDRESS` is worker RANK of a job that meets as the environment says.
"""

from __future__ import annotations

import pickle
import sys
import time

import pytest

import weft as torch
from tests.distributed.rpc import job
from tests.distributed.rpc.leaks import nothing_is_left
from weft import Tensor, nn
from weft.distributed import autograd, rpc
from weft.distributed.nn import RemoteModule
from weft.distributed.optim import DistributedOptimizer
from weft.distributed.rpc import TensorPipeRpcBackendOptions
from weft.futures import Future


@torch.compile
def my_script_add(tensor: Tensor, scalar: int):
    return torch.add(tensor, scalar)


@rpc.functions.async_execution
def async_add_chained(to, x, y, z):
    return rpc.rpc_async(to, torch.add, args=(x, y)).then(lambda fut: fut.wait() + z)


@rpc.functions.async_execution
@torch.compile
def script_add(to: str, x: Tensor, y: Tensor):
    return rpc.rpc_async(to, torch.add, args=(x, y))


class AsyncExecutionClass:
    @staticmethod
    @rpc.functions.async_execution
    def static_async_add(to, x, y, z):
        return rpc.rpc_async(to, torch.add, args=(x, y)).then(lambda fut: fut.wait() + z)

    @classmethod
    @rpc.functions.async_execution
    def class_async_add(cls, to, x, y, z):
        made = Future()
        rpc.rpc_async(to, torch.add, args=(x, y)).then(lambda fut: made.set_result(fut.wait() + z))
        return made

    @rpc.functions.async_execution
    def bound_async_add(self, to, x, y, z):
        return rpc.rpc_async(to, torch.add, args=(x, y)).then(lambda fut: fut.wait() + z)


def no_future():
    return 3


no_future_said = rpc.functions.async_execution(no_future)


def wrong():
    raise ValueError("expected")


def look(ref):
    return ref.is_owner(), ref.owner().name, ref.to_here().tolist()


def made_here():
    return rpc.RRef(torch.ones(2))


_kept = []


def keep(ref):
    _kept.append(ref)


def look_at_kept():
    return look(_kept.pop())


def parameter():
    return nn.Parameter(torch.ones(2))


def values_of(ref):
    return ref.local_value().tolist(), ref.local_value().grad


def calls():
    ones = torch.ones(2)
    assert rpc.rpc_sync("worker1", torch.add, args=(ones, 3)).tolist() == [4, 4]
    fut1 = rpc.rpc_async("worker1", torch.add, args=(ones, 3))
    fut2 = rpc.rpc_async("worker1", min, args=(1, 2))
    assert (fut1.wait() + fut2.wait()).tolist() == [5, 5]
    rref1 = rpc.remote("worker1", torch.add, args=(ones, 3))
    rref2 = rpc.remote("worker1", torch.add, args=(ones, 1))
    assert (rref1.to_here() + rref2.to_here()).tolist() == [6, 6]
    for _ in range(3):  # once captured, and replayed
        assert rpc.rpc_sync("worker1", my_script_add, args=(ones, 3)).tolist() == [4, 4]
    assert rpc.rpc_async("worker1", my_script_add, args=(ones, 3)).wait().tolist() == [4, 4]
    assert rpc.remote("worker1", my_script_add, args=(ones, 3)).to_here().tolist() == [4, 4]
    info = rpc.get_worker_info("worker2")
    assert repr(info) == "WorkerInfo(id=2, name=worker2)"
    for to in (info, 2, "worker0"):  # and to itself
        assert rpc.rpc_sync(to, torch.add, args=(ones, 1)).tolist() == [2, 2]
    with rpc.api._wait_all():
        futures = [rpc.rpc_async("worker1", torch.add, (ones, number)) for number in range(3)]
    assert all(future.done() for future in futures)
    with pytest.raises(ValueError, match="expected"), rpc.api._wait_all():
        rpc.rpc_async("worker1", wrong)


def asynchronous():
    """The table of `functions.async_execution`."""
    x = torch.ones(2)
    rows = (
        (async_add_chained, (x, 1, 1), "tensor([3., 3.])"),
        (script_add, (x, x), "tensor([2., 2.])"),
        (AsyncExecutionClass.static_async_add, (x, 1, 2), "tensor([4., 4.])"),
        (AsyncExecutionClass.class_async_add, (x, 1, 2), "tensor([4., 4.])"),
        (AsyncExecutionClass().bound_async_add, (x, 1, 2), "tensor([4., 4.])"),
    )
    for function, args, printed in rows:
        for number in range(2):  # another future each time
            assert repr(rpc.rpc_sync("worker1", function, args=("worker2", *args))) == printed, (function, number)
        assert repr(rpc.rpc_async("worker1", function, args=("worker2", *args)).wait()) == printed
        assert repr(rpc.remote("worker1", function, args=("worker2", *args)).to_here()) == printed
    rref = rpc.remote("worker1", AsyncExecutionClass)
    args = ("worker2", x, 1, 2)
    for name in ("static_async_add", "class_async_add", "bound_async_add"):
        for found in (
            getattr(rref.rpc_sync(), name)(*args),
            getattr(rref.rpc_async(), name)(*args).wait(),
            getattr(rref.remote(), name)(*args).to_here(),
        ):
            assert repr(found) == "tensor([4., 4.])"
    told = (
        r"(?s)Functions decorated with @rpc\.async_function must return a torch\.futures\.Future object, but got "
        r"builtins\.int"
    )
    for use in (rpc.rpc_sync, lambda to, function: rpc.remote(to, function).to_here()):
        with pytest.raises(RuntimeError, match=told):
            use("worker1", no_future_said)
    told = r"script_add\(\) Expected a value of type 'Tensor' for argument 'y' but instead found type 'int'\."
    with pytest.raises(TypeError, match=told):
        rpc.rpc_sync("worker1", script_add, args=("worker2", x, 1))


def failures():
    """The table of observed errors."""
    with pytest.raises(RuntimeError, match=r"^RPC is already initialized$"):
        rpc.init_rpc("worker0", rank=0, world_size=3)
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(RuntimeError, match=r"^name:worker0,rank:0 could not find destination name nope; known are"):
            call("nope", torch.add)
        with pytest.raises(ValueError, match=r"^Cannot get WorkerInfo from name 1\.5$"):
            call(1.5, torch.add)
        with pytest.raises(TypeError, match=r"^function should be callable\.$"):
            call("worker1", 1)
    raised = r"(?s)^On WorkerInfo\(id=1, name=worker1\):\nValueError\('expected'\)\nTraceback .*in wrong"
    late = r"^RPCErr:1:RPC ran for more than set timeout \(500 ms\) and will now be marked with an error$"
    ways = (
        rpc.rpc_sync,
        lambda *call, **limit: rpc.rpc_async(*call, **limit).wait(),
        lambda *call, timeout=-1: rpc.remote(*call).to_here(timeout),
    )
    for call in ways:
        with pytest.raises(ValueError, match=raised):
            call("worker1", wrong)
        with pytest.raises(RuntimeError, match=late):
            call("worker1", time.sleep, (1,), timeout=0.5)
        assert call("worker1", time.sleep, (0.1,), timeout=0) is None


def references():
    own, ref = rpc.RRef(torch.ones(2)), rpc.remote("worker1", torch.add, args=(torch.ones(2), 1))
    assert own.is_owner()
    assert own.confirmed_by_owner()
    assert own.to_here() is own.local_value()
    assert (ref.is_owner(), ref.owner_name(), ref.owner()) == (False, "worker1", rpc.get_worker_info("worker1"))
    assert ref.to_here().tolist() == [2, 2]
    assert ref.confirmed_by_owner()
    at = r"can't call localValue\(\) on user WorkerInfo\(id=0, name=worker0\)\. Call it on owner WorkerInfo\(id=1, name"
    with pytest.raises(RuntimeError, match=at):
        ref.local_value()
    with pytest.raises(
        RuntimeError, match=r"^Can not pickle rref in python pickler, rref can only be pickled when usi"
    ):
        pickle.dumps(ref)
    assert repr(own).startswith("OwnerRRef(GloballyUniqueId(created_on=0, local_id=")
    assert repr(ref).startswith("UserRRef(RRefId = GloballyUniqueId(created_on=0, local_id=")
    assert ", ForkId = GloballyUniqueId(created_on=0, local_id=" in repr(ref)
    assert ref.rpc_sync().size() == ref.rpc_async().size().wait() == ref.remote().size().to_here() == (2,)
    leaf = torch.ones(2, requires_grad=True)
    rpc.RRef((2 * leaf).sum()).backward()
    assert leaf.grad.tolist() == [2, 2]


def sharing():
    """The scenarios of the protocol."""
    ref = rpc.remote("worker1", torch.add, args=(torch.ones(2), 1))
    assert rpc.rpc_sync("worker1", look, (ref,)) == (True, "worker1", [2, 2])  # shared with the owner, as an argument
    shared = rpc.remote("worker1", made_here)
    back = shared.to_here()  # the owner shares it
    assert (back.owner_name(), back.to_here().tolist()) == ("worker1", [1, 1])
    assert rpc.rpc_sync("worker2", look, (ref,)) == (False, "worker1", [2, 2])  # a user shares it with a user
    assert rpc.rpc_sync("worker2", keep, (ref,)) is None
    del ref
    assert rpc.rpc_sync("worker2", look_at_kept) == (False, "worker1", [2, 2])


def modules():
    module = RemoteModule("worker1/cpu", nn.Linear, args=(20, 30))
    x = torch.randn(128, 20)
    assert module.forward_async(x).wait().shape == module(x).shape == (128, 30)
    assert [list(one.to_here().shape) for one in module.remote_parameters()] == [[30, 20], [30]]
    for place in ("worker1", "rank:1", "rank:1/cpu"):
        assert RemoteModule(place, nn.Linear, args=(2, 3)).get_module_rref().owner_name() == "worker1"
    with pytest.raises(ValueError, match=r"^Method ``to`` not supported for RemoteModule$"):
        module.to("cpu")
    with pytest.raises(
        ValueError, match=r"^Method ``parameters`` not supported for RemoteModule\. Please use ``remote_p"
    ):
        module.parameters()
    told = (
        r"Expect `module_cls\(\*args, \*\*kwargs\)` returns an instance of <class nn\.Module>, but it returns an "
        r"instance of <class 'dict'>\."
    )
    with pytest.raises(ValueError, match=told):
        RemoteModule("worker1/cpu", dict)
    with pytest.raises(RuntimeError, match="device type at start of device string: nodevice"):
        RemoteModule("worker1/nodevice", nn.Linear, args=(2, 3))
    with pytest.raises(
        RuntimeError, match=r"^Cannot pickle RemoteModule in python pickler\. RemoteModule can only be p"
    ):
        pickle.dumps(module)


def gradients():
    t1, t2 = torch.rand((3, 3), requires_grad=True), torch.rand((3, 3), requires_grad=True)
    for rooted in (lambda loss: [loss], lambda loss: loss):  # one of the texts gives no list
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", torch.add, args=(t1, t2)).sum()
            autograd.backward(context_id, rooted(loss))
            grads = autograd.get_gradients(context_id)
        assert grads.keys() == {t1, t2}
        assert all(torch.equal(grad, torch.ones(3, 3)) for grad in grads.values())
    assert t1.grad is None
    with pytest.raises(RuntimeError, match=r"^Could not find autograd context with id: 12345$"):
        autograd.backward(12345, [loss])
    with autograd.context() as context_id:
        with pytest.raises(RuntimeError, match=" is not a scalar, all roots need to be scalar"):
            autograd.backward(context_id, [t1 + t2])
        with pytest.raises(RuntimeError, match=r"^No tensors provided for gradient computation\.$"):
            autograd.backward(context_id, [])
        with pytest.raises(RuntimeError, match=r"^requires_grad not set on root$"):
            autograd.backward(context_id, [torch.ones(())])
        with pytest.raises(RuntimeError, match=r"^Already have an autograd context id for this thread\.$"):
            autograd.context().__enter__()


def optimizers():
    remote = rpc.remote("worker1", parameter)
    optimizer = DistributedOptimizer(torch.optim.SGD, [remote], lr=0.5)
    with autograd.context() as context_id:
        autograd.backward(context_id, [remote.to_here().sum()])
        optimizer.step(context_id)
    assert rpc.rpc_sync("worker1", values_of, (remote,)) == ([0.5, 0.5], None)
    with pytest.raises(RuntimeError, match=r"^Could not find autograd context with id: 999$"):
        optimizer.step(999)


def gathering():
    """What programs use of the inner functions of `rpc.api`; all workers run this."""
    number = rpc.get_worker_info().id
    for again in range(3):
        assert rpc.api._all_gather(number + again) == {f"worker{one}": one + again for one in range(3)}
    if number:
        found = rpc.api._all_gather(torch.ones(number), {"worker2", "worker1"}, timeout=0)
        assert {name: one.tolist() for name, one in found.items()} == {"worker1": [1], "worker2": [1, 1]}
    rpc.api._barrier(["worker2", "worker0", "worker1"])
    if not number:
        with pytest.raises(RuntimeError, match=r"^timed out in _all_gather after 0\.10 seconds: RPCErr:1"):
            rpc.api._all_gather(1, ["worker0", "worker1"], timeout=0.1)


PROGRAMS = (calls, asynchronous, failures, references, sharing, modules, gradients, optimizers)


def work(rank, size):
    """A worker, wherever it runs."""
    with pytest.raises(
        RuntimeError, match=r"^RPC has not been initialized\. Call torch\.distributed\.rpc\.init_rpc fir"
    ):
        rpc.rpc_sync("worker1", torch.add)
    options = TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=20)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    gathering()
    if rank == 0:
        for program in PROGRAMS:
            program()
        nothing_is_left(*(f"worker{number}" for number in range(1, size)))
    rpc.shutdown()


if __name__ == "__main__":
    _, number, count, _ = sys.argv[1:]
    work(int(number), int(count))
    print(job.PASSED, flush=True)
