"""`weft.compile`: run a function once, then replay what it recorded as one operator.

A capture (`capture.py`) distinguishes the function's tensors by their origin: arguments, tensors that it reads from
outside (state), numbers that must be read anew (learning rates), random draws, and constants. A replay (`replay.py`)
fetches the current values of the first four and records one application. It puts the outputs where the function had put
them: results, tensors written in place, and gradients. A replay is valid while the Python state that the function can
reach is unchanged (`snapshot.py`). A function that changes Python state, or does what cannot be repeated (`watch.py`),
is run without capturing.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Sequence
from functools import partial, update_wrapper
from importlib import import_module
from types import FunctionType
from typing import Any
from weakref import WeakSet

from weft._base.cell import Cell, Contents, settings
from weft._base.logs import ARTIFACTS
from weft._base.site import end_at_user, line_of, warn_user
from weft._base.state import Ambient, ambient, enter, leave, set_field
from weft._base.types import AnyCallable, Arg, Args, AttributeValue, Kwargs, Result
from weft._base.usage import log_api_usage_once
from weft._lazy.flushing import flush
from weft._lazy.liveness import escaping
from weft._lazy.outline import has_user_derivatives
from weft._lazy.role import Leaf
from weft._tensor.alias import owner_of
from weft._tensor.compile.capture import FunctionCapture
from weft._tensor.compile.kinds import kind_of, places_of_first
from weft._tensor.compile.replay import Replay
from weft._tensor.compile.snapshot import Snapshot
from weft._tensor.compile.stages import is_linked
from weft._tensor.compile.stance import Stance
from weft._tensor.compile.structure import flatten, flatten_result, is_made_anew, same_things
from weft._tensor.compile.watch import CallWatch
from weft._tensor.tensor import Tensor
from weft.errors import CompileError, PreconditionError, SettingError

_MOST_REPLAYS = 8
_MOST_FAILURES = 8
_MOST_ENTRIES = 64
_FIRST_KINDS = 8  # of calls that are captured the first time that they occur, as PyTorch compiles eight
_CALLS_OF_FURTHER_KINDS = 8  # after which they are captured, too: most lengths of sentences do not come back so often
_MODES = ("grad", "inference", "anomaly", "check_nan", "autocast")
_recompiles, _graph_breaks = (logging.getLogger(ARTIFACTS[name]) for name in ("recompiles", "graph_breaks"))


class _CallArguments:
    """The arguments of a call: `picture` is their structure, `objects` those that are no tensors, numbers or texts."""

    def __init__(self, args: Args, kwargs: Kwargs) -> None:
        self.args = args
        self.kwargs = kwargs
        self.tensors: list[Tensor] = []
        self.objects: list[Arg] = []
        self.picture = flatten((args, kwargs), self.tensors, self.objects)

    def is_as_it_was(self) -> bool:
        """Whether containers among the arguments have the same contents as before."""
        now = _CallArguments(self.args, self.kwargs)
        return same_things(self.tensors, now.tensors) and self.picture == now.picture


class _CacheEntry:
    """The replays of calls that differ only in the state that the function reads.

    settling   whether the function changed its own state during the last capture, as an optimizer does when it creates
               its state
    failures   the number of captures that have failed
    calls      the number of calls that were not replayed
    """

    def __init__(self) -> None:
        self.calls = 0
        self.replays: list[Replay] = []
        self.settling = False
        self.failures = 0


# no cell: who is told to forget replays
functions: WeakSet[Compiled] = WeakSet()
"""All functions that are compiled."""


class Compiled:
    """A function that is captured once per kind of call, and then replayed.

    The kind of a call consists of: the types, gradient flags and view paths of tensor arguments, and which of them
    share storage; the values of other arguments; modes and defaults; and the state that the function can reach.
    """

    _read_by_calls = ()

    def __init__(self, function: AnyCallable, fullgraph: bool) -> None:
        self.__dict__.update(_function=function, _fullgraph=fullgraph, _entries={}, _runs=0, _warned=set())
        update_wrapper(self, function, updated=())
        functions.add(self)

    def __call__(self, *args: object, **kwargs: object) -> Result:
        try:
            return self._called(args, kwargs)
        except KeyboardInterrupt as error:
            end_at_user(error)
            raise

    def _called(self, args: Args, kwargs: Kwargs) -> Result:
        state = ambient()
        if is_watched(state) or Stance.current == "force_eager":
            return self._function(*args, **kwargs)
        call = _CallArguments(args, kwargs)
        key = (
            call.picture,
            tuple([kind_of(t) for t in call.tensors]),
            places_of_first(call.tensors),
            state.grad,
            state.inference,
            state.autocast,
            state.context.attention,
            state.overrides.by_classes,
            state.context.transform is None,
            settings(),
        )
        entry = self._entries.get(key)
        if entry is None:
            entry = self._new_entry(key)
        why = "a tensor"
        for replay in entry.replays:
            why = replay.difference(call.tensors)
            if not why:
                return replay.run(call.tensors)
        if Stance.current == "fail_on_recompile":
            raise CompileError(f"Detected recompile when torch.compile stance is 'fail_on_recompile': {self._name}")
        if Stance.current == "eager_on_recompile":
            return self._function(*args, **kwargs)
        entry.calls += 1
        if entry.calls < _CALLS_OF_FURTHER_KINDS and len(self._entries) > _FIRST_KINDS:
            return self._function(*args, **kwargs)
        return self._run(entry, call, why)

    def reset(self) -> None:
        """Forget all captures."""
        self._entries.clear()

    def _new_entry(self, key: object) -> _CacheEntry:
        if len(self._entries) >= _MOST_ENTRIES:
            del self._entries[next(iter(self._entries))]
            self._warn_of_change("its arguments' shapes, or arguments that are no tensors,")
        return self._entries.setdefault(key, _CacheEntry())

    # --- capturing ----------------------------------------------------------------------------------------------

    def _run(self, entry: _CacheEntry, call: _CallArguments, why: str) -> Result:
        """Run the function, and capture it if that is possible; `why` is what has changed since the last capture."""
        self.__dict__["_runs"] += 1
        if entry.failures >= _MOST_FAILURES:
            return self._function(*call.args, **call.kwargs)
        snapshot = Snapshot()
        snapshot.add(self._function, self._name)
        for thing in call.objects:
            snapshot.add(thing, f"{self._name}(...)")
        for cell, value in settings():
            if isinstance(value, Contents):  # hooks and other functions of the user
                snapshot.add(value, cell.name)
        capture = FunctionCapture(call.tensors, snapshot)
        outer = ambient().pending
        apart = {"pending": capture.region, "capture": capture, "autocast": ambient().autocast.apart()}
        try:
            token = enter(**apart)
            try:
                with CallWatch(snapshot, capture.prevent):
                    del apart  # casts that are kept are nobody's after the call
                    before = _modes()
                    result = self._function(*call.args, **call.kwargs)
                    after = _modes()
                    _refresh(result, capture)
            finally:
                leave(token)
            if after != before:
                capture.prevent("changes the gradient mode or a default for what follows")
            self._keep(entry, call, capture, result, why)
        finally:
            try:
                capture.make_calls(outer)
            finally:
                outer.absorb(capture.region)
        if after != before:
            set_field(**dict(zip(_MODES, after[: len(_MODES)], strict=True)))
        if capture.prevented:
            self._warn_prevented(entry, capture)
        if capture.written:
            flush(outer)
        return result

    def _keep(
        self, entry: _CacheEntry, call: _CallArguments, capture: FunctionCapture, result: object, why: str
    ) -> None:
        """Make a replay of a capture, unless it would not do the same as the function."""
        snapshot = capture.snapshot
        if snapshot.opaque:
            capture.prevent(f"reads {snapshot.opaque}")
        for alias in [tensor._alias for tensor in capture.written.values() if tensor._alias is not None]:
            is_renamed = bool(alias.steps) and alias.steps[-1][0].op.name == "renamed"
            capture.prevent(
                "gives other names to the dims of a tensor from outside"
                if is_renamed
                else "makes a tensor from outside a view of another one"
            )
        others = [value for value in capture.region if not is_linked(value)]
        if capture.prevented or has_user_derivatives(others) or capture.trains_what_it_wrote():
            return
        results: list[Tensor] = []
        others: list[Arg] = []
        picture = flatten_result(result, results, others, lambda thing: thing in snapshot)
        odd = [thing for thing in others if not is_made_anew(thing)]
        if odd:
            capture.prevent(f"returns a {type(odd[0]).__name__} that it has made, which a replay cannot")
            return
        change = snapshot.difference()
        if change:
            location = snapshot.line_of_store(change) or line_of(self._function) or ""
            change = f"changes `{change}`{location and ' at ' + location}"
        elif not call.is_as_it_was():
            change = "changes one of its arguments"
        elif _leaves_tensors_behind(capture, results):
            change = "leaves tensors behind where a replay would not put them"
        if change:
            if entry.settling:
                capture.prevent(change)
            entry.settling = True
            return
        entry.settling = False
        replay = Replay(capture, call.tensors, results, picture, f"compiled {self._name}")
        if not capture.prevented:
            self._log_change(entry, why)
            if len(entry.replays) == _MOST_REPLAYS:
                del entry.replays[0]
                self._warn_of_change(why)
            entry.replays.append(replay)

    def _log_change(self, entry: _CacheEntry, why: str) -> None:
        """Log what has changed since an earlier capture, if there is one."""
        if entry.replays or len(self._entries) > 1:
            what = why if entry.replays else "arguments, modes or defaults"
            _recompiles.debug("%s is captured again, since this has changed: %s", self._name, what)

    def _warn_prevented(self, entry: _CacheEntry, capture: FunctionCapture) -> None:
        entry.failures += 1
        if self._fullgraph:
            raise CompileError(
                f"{self._name}: the function {capture.prevented}, so it cannot be captured whole; move that out of it, "
                "or compile with fullgraph=False"
            )
        text = f"{self._name} {capture.prevented}; it runs uncaptured"
        _graph_breaks.debug("%s", text)
        self._warn_once("prevented", text)

    def _warn_of_change(self, what: str) -> None:
        self._warn_once(
            "change",
            f"{self._name} is captured anew again and again, since {what} changed each time; numbers that change are "
            "better tensors",
        )

    def _warn_once(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            warn_user(f"weft.compile: {message}")

    # --- the function's attributes ------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", type(self._function).__name__)

    @property
    def _orig_mod(self) -> AnyCallable:
        """The function or module itself, by PyTorch's name for it."""
        return self._function

    def __getattr__(self, name: str) -> AttributeValue:
        return getattr(self.__dict__["_function"], name)

    def __setattr__(self, name: str, value: object) -> None:
        function = self.__dict__.get("_function")
        if name.startswith("__") or function is None or isinstance(function, FunctionType):
            object.__setattr__(self, name, value)
        else:
            setattr(function, name, value)

    def __get__(self, instance: object, owner: object = None) -> Result:
        return self if instance is None else _BoundMethod(self, instance)

    def __reduce__(self) -> str | Args:
        """Pickled by name if its module has it under its name, as functions are; otherwise with its function."""
        name = self.__dict__.get("__qualname__", "")
        value: Arg = sys.modules.get(self.__module__)
        for part in name.split("."):
            value = getattr(value, part, None)
        return name if value is self else (Compiled, (self._function, self._fullgraph))


class _BoundMethod:
    """A compiled function accessed on an instance."""

    _read_by_calls = ("_compiled", "_instance")

    def __init__(self, compiled: Compiled, instance: object) -> None:
        self._compiled = compiled
        self._instance = instance

    def __call__(self, *args: object, **kwargs: object) -> Result:
        return self._compiled(self._instance, *args, **kwargs)


def compile(
    model: AnyCallable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: object = None,
    mode: str | None = None,
    options: object = None,
    disable: bool = False,
) -> Result:
    """Capture a function or module once per kind of call, and replay it without running its Python code.

    State that it reads and writes (parameters, buffers, optimizer state, random generators, learning rates) is read
    anew in every call. If Python state that it can reach has changed, it is captured again. A function that reads
    values, changes Python state or does input and output is run without capturing, with a warning; with `fullgraph` it
    raises `CompileError`. `dynamic`, `mode`, `options` and the names of PyTorch's own backends are checked as in
    PyTorch, and have no effect. A function as `backend`, or the name of one that was registered, gets the graphs of
    what the function does, and what it returns is called in their place.
    """
    log_api_usage_once("torch.compile")
    _require_options(dynamic, backend, mode, options)
    if model is not None and not callable(model):
        raise PreconditionError(f"A callable function is expected, but {type(model)} is provided.")
    if model is None:
        return partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if disable:
        return model
    make: AnyCallable = partial(Compiled, fullgraph=fullgraph)
    backend = DEFAULT_BACKEND.get() if backend is None else backend
    if not (isinstance(backend, str) and backend in XLA_NAMES):  # one of the user's, which gets graphs of `weft.fx`
        by_backend = import_module("weft._dynamo._compiled").compiled_by
        make = partial(by_backend, fullgraph=fullgraph, backend=backend, mode=mode, options=options)
    around = getattr(type(model), "compiled_by", None)  # a replica's own work around its module is not compiled
    return make(model) if around is None else around(model, make)


DEFAULT_BACKEND = Cell[Any]("the default compiler", "xla")


XLA_NAMES = frozenset(
    {
        "xla", "inductor", "cudagraphs", "openxla", "tvm", "eager", "aot_eager", "ts", "aot_ts", "eager_debug",
        "eager_noexcept", "pre_dispatch_eager", "aot_eager_decomp_partition",
    }
)  # fmt: skip
"""The names of XLA, and of PyTorch's backends, in whose stead XLA compiles."""
_PRESETS = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


def _require_options(dynamic: object, backend: object, mode: object, options: object) -> None:
    """Refuse what PyTorch refuses, as far as it depends on no other compiler's settings."""
    if mode is not None and options is not None:
        raise SettingError(
            "Either mode or options can be specified, but both can't be specified at the same time: got "
            f"mode={mode!r}, options={options!r}"
        )
    if mode is not None and mode not in _PRESETS and backend in (None, "xla", "inductor"):
        raise SettingError(f"Unrecognized mode={mode}, should be one of: {', '.join(_PRESETS)}")
    if not isinstance(dynamic, bool | None):
        raise PreconditionError(f"compile: expected dynamic to be a bool or None, got {type(dynamic)}")


def is_watched(state: Ambient) -> bool:
    """Whether something is done at every operator of a call, or depends on which tensors have tangents."""
    overridden = state.overrides.mode is not None
    watchers = state.watchers
    return state.capture is not None or overridden or watchers.eager or watchers.anomaly or bool(watchers.forward)


def _modes() -> Args:
    state = ambient()
    modes = (state.grad, state.inference, state.watchers.anomaly, state.watchers.check_nan, state.autocast.apart())
    return *modes, settings()


def _refresh(result: object, capture: FunctionCapture) -> None:
    """Read views that outlive the function, so that what they show after the last write is captured, too."""
    left: list[Tensor] = []
    flatten_result(result, left, [], lambda thing: thing in capture.snapshot)
    for tensor in (*left, *[role.grad for _, role in capture.new_grads() if role.grad is not None]):
        tensor._read()


def _leaves_tensors_behind(capture: FunctionCapture, results: Sequence[Tensor]) -> bool:
    """Whether values of the region are still held that a replay would not produce."""
    tapes = {id(v.role): v.role for v in capture.region if isinstance(v.role, Leaf)}  # of its own leaves
    tapes.update([(id(role), role) for _, role in capture.new_grads()])
    grads = [role.grad for role in tapes.values() if role.grad is not None]
    handles = [*results, *capture.written.values(), *grads]
    roots = {id(tensor): tensor for tensor in [*handles, *map(owner_of, handles)]}
    views = [ref() for root in roots.values() for ref in root._views or ()]
    expected = {id(tensor._value) for tensor in (*roots.values(), *views) if tensor is not None}
    left = _held_elsewhere(capture) - expected
    if left:  # unless only garbage holds them
        gc.collect()
        left = _held_elsewhere(capture) - expected
    return bool(left)


def _held_elsewhere(capture: FunctionCapture) -> set[int]:
    """Ids of the values of the region to which neither the region nor the deferred calls refer alone."""
    return escaping(capture.region, capture.operands)
