"""Functions whose results come later, and functions that are compiled, in a job of one worker that calls itself.

`spec.py` has the documented examples, with three workers.
"""

from __future__ import annotations

import pickle

import pytest

import weft as torch
from weft import Tensor
from weft.distributed import rpc
from weft.futures import Future


@pytest.fixture
def alone(tmp_path):
    """A job of one worker, w0, which runs one function at a time."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store", num_worker_threads=1)
    rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=options)
    yield
    let_all_go()
    rpc.shutdown()


_waiting = []


@rpc.functions.async_execution
def wait_for_me(number):
    made = Future()
    _waiting.append((number, made))
    return made


def let_all_go(error=None):
    while _waiting:
        number, made = _waiting.pop()
        if error is None:
            made.set_result(number)
        else:
            made.set_exception(error)


@rpc.functions.async_execution
def no_future(value):
    return value


def a_future():
    return Future()


class Holder:
    @rpc.functions.async_execution
    def no_future(self):
        return None


@rpc.functions.async_execution
@torch.compile
def compiled(x: Tensor, y: float = 1, z: list[int] | None = None, *rest: int, **more: int):
    return rpc.rpc_async("w0", torch.add, (x, y))


@torch.compile
def calls_inside(x):
    return rpc.rpc_sync("w0", max, (1, 2)) + x


@torch.compile
def plain(x):
    return x + 1


def test_no_thread_waits(alone):
    futures = [rpc.rpc_async("w0", wait_for_me, (number,)) for number in range(20)]
    references = [rpc.remote("w0", wait_for_me, (number,)) for number in range(20)]
    while len(_waiting) < 40:
        rpc.rpc_sync("w0", int)  # the only thread runs this
    assert not any(future.done() for future in futures)
    rpc.rpc_sync("w0", let_all_go)
    assert [future.wait() for future in futures] == list(range(20))
    assert [reference.to_here() for reference in references] == list(range(20))


def test_errors_come_later_too(alone):
    future, reference = rpc.rpc_async("w0", wait_for_me, (1,)), rpc.remote("w0", wait_for_me, (1,))
    while len(_waiting) < 2:
        rpc.rpc_sync("w0", int)
    rpc.rpc_sync("w0", let_all_go, (KeyError("k"),))
    for use in (future.wait, reference.to_here):
        with pytest.raises(KeyError, match="k"):
            use()
    with pytest.raises(RuntimeError, match=r"^RPCErr:1:RPC ran for more than set timeout \(50 ms\)"):
        rpc.rpc_sync("w0", wait_for_me, (1,), timeout=0.05)
    let_all_go()


def test_something_else_than_a_future_is_refused(alone):
    told = r"decorated with @rpc\.async_function must return a torch\.futures\.Future object, but got builtins"
    for use in (
        lambda: rpc.rpc_sync("w0", no_future, (3,)),
        lambda: rpc.rpc_async("w0", no_future, (None,)).wait(),
        lambda: rpc.remote("w0", no_future, (3,)).to_here(),
        lambda: rpc.RRef(Holder()).rpc_sync().no_future(),
        lambda: rpc.RRef(Holder()).rpc_async().no_future().wait(),
        lambda: rpc.RRef(Holder()).remote().no_future().to_here(),
    ):
        with pytest.raises(RuntimeError, match=told):
            use()


def test_a_reference_lasts_as_long_as_its_methods(alone):
    made = rpc.RRef([1, 2]).remote().count(2)  # which begins when nobody else has the reference any more
    assert made.to_here() == 1


def test_futures_do_not_travel(alone):
    told = (
        r"Can not pickle torch\.futures\.Future: only its value can be sent\. .* under rpc\.functions\.async_execution"
    )
    with pytest.raises(RuntimeError, match=told):
        rpc.rpc_sync("w0", a_future)
    with pytest.raises(RuntimeError, match=told):
        rpc.rpc_sync("w0", repr, (Future(),))


def test_arguments_of_compiled_functions_are_checked(alone):
    x = torch.ones(2)
    for args, result in (((x,), [2, 2]), ((x, 2), [3, 3]), ((x, 2.5, [1], 2), [3.5, 3.5]), ((x, 1, None), [2, 2])):
        assert rpc.rpc_sync("w0", compiled, args).tolist() == result
    for args, kwargs, name, expected, given in (
        ((1,), {}, "x", "Tensor", "int"),
        ((x, "1"), {}, "y", "float", "str"),
        ((x,), {"y": None}, "y", "float", "NoneType"),
        ((x, 1, (1,)), {}, "z", r"list\[int\] \| None", "tuple"),
    ):
        told = rf"compiled\(\) Expected a value of type '{expected}' for argument '{name}' but .* found type '{given}'"
        with pytest.raises(TypeError, match=told):
            compiled(*args, **kwargs)
        with pytest.raises(TypeError, match=told):
            rpc.rpc_sync("w0", compiled, args, kwargs)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        rpc.rpc_sync("w0", compiled)


def test_a_call_in_a_compiled_function_is_made_each_time(alone):
    with pytest.warns(
        UserWarning, match=r"^weft\.compile: calls_inside needs a remote call at .*; it runs uncaptured$"
    ):
        assert calls_inside(torch.ones(1)).tolist() == [3]
    before = rpc.api.current_agent().counts()[0]
    assert calls_inside(torch.ones(1)).tolist() == [3]
    assert rpc.api.current_agent().counts()[0] == before + 1


def test_compiled_functions_travel_by_name_or_whole(alone):
    assert pickle.loads(pickle.dumps(plain)) is plain
    inner = torch.compile(lambda x: x + 2)
    for function, result in ((plain, [2, 2]), (inner, [3, 3])):
        assert rpc.rpc_sync("w0", function, (torch.ones(2),)).tolist() == result
