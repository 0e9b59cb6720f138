"""Callbacks around operators and blocks."""

from __future__ import annotations

import gc
import logging
import math
import threading

import numpy as np
import pytest

import weft
from tests._lazy.interpreter.rows import programs, samples
from weft._autograd.derive import derivative_of
from weft._base.pending import Pending
from weft._base.state import ambient, using
from weft._lazy.record import record
from weft._lazy.role import Leaf
from weft._lazy.value import Value
from weft._tensor.tensor import wrap
from weft.distributed._threads import run_threads
from weft.errors import WeftError
from weft.monitor import (
    RecordScope,
    TensorType,
    add_global_callback,
    add_thread_local_callback,
    debug_info,
    get_debug_info,
)
from weft.ops._table import TABLE
from weft.profiler import record_function


class Seen(list):
    """A callback that keeps what it is called with, as (name, scope), and what `look` finds in it."""

    def __init__(self, look=lambda function: None):
        super().__init__()
        self.look = look
        self.found = []

    def __call__(self, function):
        self.append((function.name, function.scope))
        self.found.append(self.look(function))

    @property
    def names(self):
        return [name for name, _ in self]

    def scopes(self, name):
        return [scope for own, scope in self if own == name]


def leaf(array, aval):
    value = Value(aval, array.item() if aval.weak else array)
    if aval.dtype.is_differentiable and not aval.weak:
        value.role = Leaf()
    return value


@pytest.mark.parametrize("name", TABLE)
def test_every_operator_is_seen_once_forward_and_backward(name):
    (program,) = programs(samples()[name], (None,), derivatives=False)
    signature = program.signature
    inputs = tuple(leaf(np.asarray(x), aval) for x, aval in zip(program.arrays, signature.avals, strict=True))
    with using(pending=Pending()), add_global_callback(Seen()) as handle:
        seen = handle._enter
        try:
            outputs = record(signature, inputs, ambient())
        except WeftError:  # the row refuses the sample's values
            return
        assert seen.scopes(signature.name) == [RecordScope.FUNCTION]
        smooth = [value for value in outputs if value.role is not None]
        if not smooth:
            return
        del seen[:]
        need = tuple(at for at, x in enumerate(inputs) if x.role is not None)
        derivative = derivative_of(signature, need, (smooth[0].origin.index,))
        wrap(smooth[0]).backward(weft.ones(tuple(smooth[0].aval.shape), dtype=smooth[0].aval.dtype))
        expected = [RecordScope.BACKWARD_FUNCTION] if derivative.signature is not None else []
        assert seen.scopes(f"grad of {signature.name}") == expected


def test_what_a_callback_is_told():
    x, w = weft.ones(3, 4, requires_grad=True), weft.ones(4, 2)
    seen = Seen(lambda f: (f.input_types, f.output_type, f.site.rpartition("/")[2], f.thread_id, f.is_backward))
    with add_global_callback(seen):
        line = "test_callbacks.py:" + str(here() + 1)
        y = x @ w
        z = y * 2
        z.sum().backward()
    types, output, site, thread, backward = seen.found[0]
    assert seen.names[:3] == ["matmul", "mul", "sum"]
    assert types == (TensorType(x.shape, x.dtype, x.device), TensorType(w.shape, w.dtype, w.device))
    assert output == ((3, 2), weft.float32, weft.device("cpu"))
    assert (site, thread, backward) == (line, threading.get_native_id(), False)
    assert seen.found[1][0][1] is int
    assert [flag for *_, flag in seen.found[:3]] == [False] * 3
    assert all(flag for *_, flag in seen.found[3:])
    assert "grad of matmul" in seen.names[3:]


def here():
    return __import__("sys")._getframe(1).f_lineno


def test_values_can_be_read_and_what_is_computed_is_not_seen():
    seen = Seen(lambda f: (f.inputs[0] + 1).sum().item())
    x = weft.tensor([1.0, 2.0])
    with add_global_callback(seen):
        y = (x * 3).exp()
    assert seen.names == ["mul", "exp"]
    assert seen.found == [5.0, 11.0]
    assert y.tolist() == pytest.approx([math.exp(3), math.exp(6)], rel=1e-5)


def test_nothing_is_readable_after_the_callback():
    kept = []
    with add_global_callback(kept.append):
        weft.ones(3)
    assert kept[0].name
    for read in (lambda f: f.inputs, lambda f: f.output_type, lambda f: f.site):
        with pytest.raises(RuntimeError, match="only while a callback runs"):
            read(kept[0])


def test_handles_stop_and_go_on_and_without_callbacks_nothing_is_left():
    seen, x = Seen(), weft.ones(3)
    handle = add_global_callback(seen)
    x + 1
    handle.disable()
    x - 1
    handle.enable()
    handle.enable()
    x * 2
    handle.remove()
    handle.remove()
    x / 2
    assert seen.names == ["add", "mul"]
    assert ambient().pending.limit == ambient().pending.room


def test_exit_gets_what_enter_has_returned():
    calls = []
    with add_thread_local_callback(lambda f: ("for", f.name), lambda f, context: calls.append((f.name, context))):
        weft.ones(2) + 1
        with record_function("block"):
            calls.append("within")
    assert calls == [("ones", ("for", "ones")), ("add", ("for", "add")), "within", ("block", ("for", "block"))]


def test_blocks_are_seen_where_their_scope_is_asked_for():
    everything, blocks, passes = Seen(), Seen(), Seen()
    with (
        add_global_callback(everything),
        add_global_callback(blocks, scopes=[RecordScope.USER_SCOPE]),
        add_global_callback(passes, scopes={RecordScope.BACKWARD_FUNCTION}),
    ):
        with record_function("outer"), record_function("inner"):
            x = weft.ones(2, requires_grad=True)
        x.exp().sum().backward()
    assert blocks == [("outer", RecordScope.USER_SCOPE), ("inner", RecordScope.USER_SCOPE)]
    assert passes
    assert set(passes) == {entry for entry in everything if entry[1] is RecordScope.BACKWARD_FUNCTION}


def test_of_a_thread_and_of_all():
    own, every = Seen(), Seen()
    ready, go = threading.Event(), threading.Event()

    def other():
        weft.ones(1) + 1  # it has its list before the callbacks are added
        ready.set()
        assert go.wait(10)
        weft.ones(1) - 1

    thread = threading.Thread(target=other)
    thread.start()
    assert ready.wait(10)
    with add_thread_local_callback(own), add_global_callback(every):
        go.set()
        thread.join()
        weft.ones(1) * 2
    assert own.names == ["ones", "mul"]
    assert every.names == ["ones", "sub", "ones", "mul"]


def test_all_see_an_operator_whose_computation_the_first_of_them_causes():
    x = weft.ones(2)
    first, second = Seen(lambda f: f.inputs[0].tolist()), Seen()
    with add_global_callback(first), add_global_callback(second):
        weft.tanh(weft.sin(x))
        weft.cos(x)
    assert first.names == second.names == ["sin", "tanh", "cos"]


def test_callbacks_of_a_thread_see_all_while_others_come_and_go():
    x = weft.ones(2)
    done = threading.Event()

    def come_and_go():
        while not done.is_set():
            with add_global_callback(lambda function: None, sampling_prob=0.5):
                pass

    other = threading.Thread(target=come_and_go)
    with add_thread_local_callback(Seen()) as handle:
        other.start()
        try:
            for _ in range(3000):
                y = weft.tanh(x)
        finally:
            done.set()
            other.join()
    assert handle._enter.names == ["tanh"] * 3000
    assert ambient().pending._watches == ()
    assert y.shape == (2,)


def test_a_sample_has_its_share_wherever_lists_are_computed():
    counts, x = Seen(), weft.ones(4)
    with add_thread_local_callback(counts, sampling_prob=0.1) as handle:
        for step in range(20_000):
            x = x + 1  # the fast path
            if step % 7 == 0:
                x.tolist()
        assert handle.distance() >= 1
    assert x.tolist() == [20_001.0] * 4
    assert 2000 - 6 * 45 < len(counts) < 2000 + 6 * 45  # six standard deviations


def test_a_sample_of_a_backward_pass():
    seen, x = Seen(), weft.ones(4, requires_grad=True)
    with add_thread_local_callback(seen, scopes=[RecordScope.BACKWARD_FUNCTION], sampling_prob=0.25):
        for _ in range(100):
            y = x
            for _ in range(10):
                y = y.exp().tanh()
            y.sum().backward()
    assert 400 < len(seen) < 700  # of 2,100
    assert {scope for _, scope in seen} == {RecordScope.BACKWARD_FUNCTION}


def test_random_numbers_of_the_program_do_not_depend_on_sampling():
    weft.manual_seed(0)
    expected = weft.rand(3).tolist()
    weft.manual_seed(0)
    with add_global_callback(Seen(), sampling_prob=0.5):
        assert weft.rand(3).tolist() == expected


def test_a_callback_that_fails_is_logged_once_for_each_kind_of_error(caplog):
    called = []

    def fails(function):
        called.append(function.name)
        raise (IndexError if function.name == "mul" else KeyError)(function.name)

    def fails_at_the_end(function, context):
        raise KeyError(function.name)

    with caplog.at_level(logging.WARNING, "weft.monitor"), add_global_callback(fails):
        assert ((weft.ones(2) + 1) * 2 * 2 - 1).tolist() == [7, 7]
    assert called == ["ones", "add", "mul", "mul", "sub"]
    assert [record.message for record in caplog.records] == [
        f"a callback has failed at the beginning of {name} (it is called again; more failures by {kind} are not logged)"
        for name, kind in (("ones", "KeyError"), ("mul", "IndexError"))
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "weft.monitor"), add_global_callback(lambda f: None, fails_at_the_end):
        assert (weft.ones(2) + 1).tolist() == [2, 2]
    assert ["at the end of ones" in record.message for record in caplog.records] == [True]


def test_modes_leave_callbacks_alone():
    x = weft.ones(3, requires_grad=True)
    for mode in (weft.no_grad, weft.inference_mode, lambda: weft.autograd.set_detect_anomaly(True)):
        with mode(), add_global_callback(Seen()) as handle:
            x + 1
            assert handle._enter.names == ["add"]


def test_a_compiled_function_is_one_operator_once_it_is_known():
    @weft.compile
    def function(x):
        return (x * 2).exp()

    x = weft.ones(3)
    for _ in range(3):
        function(x)
    with add_global_callback(Seen()) as handle:
        y = function(x)
    assert len(handle._enter) == 1
    assert y.tolist() == pytest.approx([math.exp(2)] * 3, rel=1e-5)


def test_a_mapped_function_is_seen_as_it_is_carried_out():
    x = weft.ones(5, 3)
    with add_global_callback(Seen(lambda f: f.output_type.shape)) as handle:
        weft.func.vmap(lambda row: row.exp())(x)
    assert handle._enter.names == ["vmap of alias", "vmap of exp"]
    assert handle._enter.found[1] == (5, 3)


def test_debug_info_is_there_in_forward_and_backward_and_in_threads_of_the_library():
    seen = Seen(lambda f: dict(f.debug_info))
    with add_global_callback(seen):
        with debug_info(model="a", version=1):
            with debug_info(version=2):
                weft.ones(2, requires_grad=True).exp().sum().backward()
                assert get_debug_info("version") == 2
            run_threads(lambda rank: (weft.ones(1).neg(), get_debug_info("model"))[1], nprocs=2)
        weft.ones(1)
    assert get_debug_info("model") is None
    within = seen.names.index("neg")
    assert "grad of exp" in seen.names[:within]
    assert all(info["model"] == "a" for info in seen.found[:-1])
    assert seen.found[0]["version"] == 2
    assert seen.found[within]["version"] == 1
    assert seen.found[-1] == {}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"sampling_prob": 0.0}, "above 0 and at most 1, got 0.0"),
        ({"sampling_prob": 2}, "at most 1, got 2"),
        ({"scopes": ["FUNCTION"]}, "members of weft.monitor.RecordScope"),
        ({"scopes": []}, "at least one"),
        ({"scopes": None}, "at least one, got None"),
        ({"sampling_prob": "half"}, "at most 1, got 'half'"),
        ({"enter": None}, "must be functions"),
    ],
)
def test_mistakes_are_named(wrong, text):
    with pytest.raises((ValueError, TypeError), match=text):
        add_global_callback(**{"enter": print, **wrong})


def test_lists_that_end_are_forgotten():
    with add_global_callback(Seen()):
        weft.func.vmap(lambda x: x + 1)(weft.ones(3))
    gc.collect()
    assert ambient().pending._watches == ()
