"""The examples of the reference texts of remote calls, on workers `worker0` to `worker2`.

`python -m … cases RANK SIZE ADDRESS` is worker RANK of a job that meets as the environment says.
"""

from __future__ import annotations

import gc
import pickle
import re
import sys
import time

import pytest

import weft as torch
from tests.distributed.processes import Cases
from tests.distributed.rpc import job
from tests.distributed.rpc.gate import open_gate, wait_for_gate
from weft import Tensor, nn
from weft.distributed import autograd, rpc
from weft.distributed.nn import RemoteModule
from weft.distributed.optim import DistributedOptimizer
from weft.distributed.rpc import TensorPipeRpcBackendOptions
from weft.futures import Future

case = Cases()


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


# --- calls ---


@case
def functions_are_called_in_three_ways():
    ones = torch.ones(2)
    assert rpc.rpc_sync("worker1", torch.add, args=(ones, 3)).tolist() == [4, 4]
    fut1 = rpc.rpc_async("worker1", torch.add, args=(ones, 3))
    fut2 = rpc.rpc_async("worker1", min, args=(1, 2))
    assert (fut1.wait() + fut2.wait()).tolist() == [5, 5]
    rref1 = rpc.remote("worker1", torch.add, args=(ones, 3))
    rref2 = rpc.remote("worker1", torch.add, args=(ones, 1))
    assert (rref1.to_here() + rref2.to_here()).tolist() == [6, 6]


@case
def compiled_functions_are_called_in_three_ways():
    ones = torch.ones(2)
    for _ in range(3):  # once captured, and replayed
        assert rpc.rpc_sync("worker1", my_script_add, args=(ones, 3)).tolist() == [4, 4]
    assert rpc.rpc_async("worker1", my_script_add, args=(ones, 3)).wait().tolist() == [4, 4]
    assert rpc.remote("worker1", my_script_add, args=(ones, 3)).to_here().tolist() == [4, 4]


@case
def workers_are_named_in_three_ways():
    info = rpc.get_worker_info("worker2")
    assert repr(info) == "WorkerInfo(id=2, name=worker2)"
    for to in (info, 2, "worker0"):  # and to itself
        assert rpc.rpc_sync(to, torch.add, args=(torch.ones(2), 1)).tolist() == [2, 2]


@case
def wait_all_waits_for_the_calls_of_its_block():
    with rpc.api._wait_all():
        futures = [rpc.rpc_async("worker1", torch.add, (torch.ones(2), number)) for number in range(3)]
    assert all(future.done() for future in futures)
    with pytest.raises(ValueError, match="expected"), rpc.api._wait_all():
        rpc.rpc_async("worker1", wrong)


# --- the table of `functions.async_execution` ---


@case
def async_executions_are_called_in_three_ways():
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


@case
def async_executions_are_called_by_reference():
    rref = rpc.remote("worker1", AsyncExecutionClass)
    args = ("worker2", torch.ones(2), 1, 2)
    for name in ("static_async_add", "class_async_add", "bound_async_add"):
        for found in (
            getattr(rref.rpc_sync(), name)(*args),
            getattr(rref.rpc_async(), name)(*args).wait(),
            getattr(rref.remote(), name)(*args).to_here(),
        ):
            assert repr(found) == "tensor([4., 4.])"


@case
def async_executions_without_a_future_or_with_bad_arguments_are_told():
    told = (
        r"(?s)Functions decorated with @rpc\.async_function must return a torch\.futures\.Future object, but got "
        r"builtins\.int"
    )
    for use in (rpc.rpc_sync, lambda to, function: rpc.remote(to, function).to_here()):
        with pytest.raises(RuntimeError, match=told):
            use("worker1", no_future_said)
    told = r"script_add\(\) Expected a value of type 'Tensor' for argument 'y' but instead found type 'int'\."
    with pytest.raises(TypeError, match=told):
        rpc.rpc_sync("worker1", script_add, args=("worker2", torch.ones(2), 1))


# --- the table of observed errors ---

_WAYS = (
    rpc.rpc_sync,
    lambda *call, **limit: rpc.rpc_async(*call, **limit).wait(),
    lambda *call, timeout=-1: rpc.remote(*call).to_here(timeout),
)


@case
def joining_twice_is_refused():
    with pytest.raises(RuntimeError, match=r"^RPC is already initialized$"):
        rpc.init_rpc("worker0", rank=0, world_size=3)


@case
def calls_to_nobody_and_of_nothing_are_refused():
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(RuntimeError, match=r"^name:worker0,rank:0 could not find destination name nope; known are"):
            call("nope", torch.add)
        with pytest.raises(ValueError, match=r"^Cannot get WorkerInfo from name 1\.5$"):
            call(1.5, torch.add)
        with pytest.raises(TypeError, match=r"^function should be callable\.$"):
            call("worker1", 1)


@case
def what_a_function_raises_is_told_with_its_traceback():
    raised = r"(?s)^On WorkerInfo\(id=1, name=worker1\):\nValueError\('expected'\)\nTraceback .*in wrong"
    for call in _WAYS:
        with pytest.raises(ValueError, match=raised):
            call("worker1", wrong)


@case
def timeouts_are_told_and_zero_is_none():
    late = r"^RPCErr:1:RPC ran for more than set timeout \(100 ms\) and will now be marked with an error$"
    for call in _WAYS:
        with pytest.raises(RuntimeError, match=late):
            call("worker1", wait_for_gate, timeout=0.1)
        rpc.rpc_sync("worker1", open_gate)
        assert call("worker1", time.sleep, (0.01,), timeout=0) is None


# --- references ---


@case
def the_owner_of_a_reference_has_its_value():
    own = rpc.RRef(torch.ones(2))
    assert own.is_owner()
    assert own.confirmed_by_owner()
    assert own.to_here() is own.local_value()


@case
def a_user_of_a_reference_fetches_its_value():
    ref = rpc.remote("worker1", torch.add, args=(torch.ones(2), 1))
    assert (ref.is_owner(), ref.owner_name(), ref.owner()) == (False, "worker1", rpc.get_worker_info("worker1"))
    assert ref.to_here().tolist() == [2, 2]
    assert ref.confirmed_by_owner()
    at = r"can't call localValue\(\) on user WorkerInfo\(id=0, name=worker0\)\. Call it on owner WorkerInfo\(id=1, name"
    with pytest.raises(RuntimeError, match=at):
        ref.local_value()
    assert ref.rpc_sync().size() == ref.rpc_async().size().wait() == ref.remote().size().to_here() == (2,)


@case
def a_reference_is_not_pickled():
    with pytest.raises(
        RuntimeError, match=r"^Can not pickle rref in python pickler, rref can only be pickled when usi"
    ):
        pickle.dumps(rpc.RRef(1))


@case
def references_print_their_numbers():
    number = r"GloballyUniqueId\(created_on=0, local_id=\d+\)"
    printed = repr(rpc.remote("worker1", min, args=(1, 2)))
    assert re.fullmatch(rf"OwnerRRef\({number}\)", repr(rpc.RRef(1)))
    assert re.fullmatch(rf"UserRRef\(RRefId = {number}, ForkId = {number}\)", printed)


@case
def a_reference_begins_a_backward_pass():
    leaf = torch.ones(2, requires_grad=True)
    rpc.RRef((2 * leaf).sum()).backward()
    assert leaf.grad.tolist() == [2, 2]


# --- the scenarios of the protocol ---


@case
def a_reference_is_shared_with_its_owner():
    ref = rpc.remote("worker1", torch.add, args=(torch.ones(2), 1))
    assert rpc.rpc_sync("worker1", look, (ref,)) == (True, "worker1", [2, 2])


@case
def an_owner_shares_a_reference():
    back = rpc.remote("worker1", made_here).to_here()
    assert (back.owner_name(), back.to_here().tolist()) == ("worker1", [1, 1])


@case
def a_user_shares_a_reference_with_a_user_and_drops_it():
    ref = rpc.remote("worker1", torch.add, args=(torch.ones(2), 1))
    assert rpc.rpc_sync("worker2", look, (ref,)) == (False, "worker1", [2, 2])
    assert rpc.rpc_sync("worker2", keep, (ref,)) is None
    del ref
    assert rpc.rpc_sync("worker2", look_at_kept) == (False, "worker1", [2, 2])


# --- remote modules ---


@case
def a_remote_module_is_called_and_has_parameters():
    module = RemoteModule("worker1/cpu", nn.Linear, args=(20, 30))
    x = torch.randn(128, 20)
    assert module.forward_async(x).wait().shape == module(x).shape == (128, 30)
    assert [list(one.to_here().shape) for one in module.remote_parameters()] == [[30, 20], [30]]


@case
def a_remote_module_is_placed_by_name_or_rank():
    for place in ("worker1", "rank:1", "rank:1/cpu"):
        assert RemoteModule(place, nn.Linear, args=(2, 3)).get_module_rref().owner_name() == "worker1"


@case
def a_remote_module_refuses_what_needs_the_module_here():
    module = RemoteModule("worker1/cpu", nn.Linear, args=(20, 30))
    with pytest.raises(ValueError, match=r"^Method ``to`` not supported for RemoteModule$"):
        module.to("cpu")
    with pytest.raises(
        ValueError, match=r"^Method ``parameters`` not supported for RemoteModule\. Please use ``remote_p"
    ):
        module.parameters()
    with pytest.raises(
        RuntimeError, match=r"^Cannot pickle RemoteModule in python pickler\. RemoteModule can only be p"
    ):
        pickle.dumps(module)


@case
def a_remote_module_that_cannot_be_made_is_told():
    told = (
        r"Expect `module_cls\(\*args, \*\*kwargs\)` returns an instance of <class nn\.Module>, but it returns an "
        r"instance of <class 'dict'>\."
    )
    with pytest.raises(ValueError, match=told):
        RemoteModule("worker1/cpu", dict)
    with pytest.raises(RuntimeError, match="device type at start of device string: nodevice"):
        RemoteModule("worker1/nodevice", nn.Linear, args=(2, 3))


# --- distributed autograd and optimizers ---


@case
def gradients_are_kept_in_the_context():
    t1, t2 = torch.rand((3, 3), requires_grad=True), torch.rand((3, 3), requires_grad=True)
    for rooted in (lambda loss: [loss], lambda loss: loss):  # one of the texts gives no list
        with autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", torch.add, args=(t1, t2)).sum()
            autograd.backward(context_id, rooted(loss))
            grads = autograd.get_gradients(context_id)
        assert grads.keys() == {t1, t2}
        assert all(torch.equal(grad, torch.ones(3, 3)) for grad in grads.values())
    assert t1.grad is None


@case
def roots_and_contexts_that_are_none_are_refused():
    t1 = torch.rand((3, 3), requires_grad=True)
    with pytest.raises(RuntimeError, match=r"^Could not find autograd context with id: 12345$"):
        autograd.backward(12345, [t1.sum()])
    with autograd.context() as context_id:
        with pytest.raises(RuntimeError, match=" is not a scalar, all roots need to be scalar"):
            autograd.backward(context_id, [t1 + t1])
        with pytest.raises(RuntimeError, match=r"^No tensors provided for gradient computation\.$"):
            autograd.backward(context_id, [])
        with pytest.raises(RuntimeError, match=r"^requires_grad not set on root$"):
            autograd.backward(context_id, [torch.ones(())])
        with pytest.raises(RuntimeError, match=r"^Already have an autograd context id for this thread\.$"):
            autograd.context().__enter__()


@case
def an_optimizer_steps_parameters_where_they_are():
    remote = rpc.remote("worker1", parameter)
    optimizer = DistributedOptimizer(torch.optim.SGD, [remote], lr=0.5)
    with autograd.context() as context_id:
        autograd.backward(context_id, [remote.to_here().sum()])
        optimizer.step(context_id)
    assert rpc.rpc_sync("worker1", values_of, (remote,)) == ([0.5, 0.5], None)
    with pytest.raises(RuntimeError, match=r"^Could not find autograd context with id: 999$"):
        optimizer.step(999)


# --- what programs use of the inner functions of `rpc.api` ---


@case
def all_workers_gather():
    others = [rpc.rpc_async(f"worker{number}", gather) for number in (1, 2)]
    gather()
    for other in others:
        other.wait()


def gather():
    number = rpc.get_worker_info().id
    for again in range(3):
        assert rpc.api._all_gather(number + again) == {f"worker{one}": one + again for one in range(3)}
    if number:
        found = rpc.api._all_gather(torch.ones(number), {"worker2", "worker1"}, timeout=0)
        assert {name: one.tolist() for name, one in found.items()} == {"worker1": [1], "worker2": [1, 1]}
    rpc.api._barrier(["worker2", "worker0", "worker1"])


@case
def gathering_alone_is_late():
    with pytest.raises(RuntimeError, match=r"^timed out in _all_gather after 0\.10 seconds: RPCErr:1"):
        rpc.api._all_gather(1, ["worker0", "worker1"], timeout=0.1)


def join(rank, size):
    """Become a worker, wherever it runs."""
    with pytest.raises(
        RuntimeError, match=r"^RPC has not been initialized\. Call torch\.distributed\.rpc\.init_rpc fir"
    ):
        rpc.rpc_sync("worker1", torch.add)
    options = TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=20)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)


if __name__ == "__main__":
    _, number, count, _ = sys.argv[1:]
    gc.freeze()  # as in `job.join`
    join(int(number), int(count))
    if number == "0":
        job.serve_cases(case, int(count))
    rpc.shutdown()
