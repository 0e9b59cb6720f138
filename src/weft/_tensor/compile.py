"""`weft.compile`: run a function once, then replay what it recorded as one operator.

The function's tensors are told apart by where they come from: arguments, tensors that it reads from outside (state),
numbers that must be read anew (learning rates), random draws, and constants. A replay fetches the current values of
the first four, records one application, and puts its outputs where the function had put them: its results, tensors
that it wrote in place, and gradients that it left behind.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from weft._base.site import user_site
from weft._base.state import Pending, ambient, default_dtype, using
from weft._lazy.outline import has_user_derivatives, outline
from weft._lazy.realize import escaping, flush
from weft._lazy.record import record
from weft._lazy.value import FREED, Tape, Value
from weft._tensor.alias import owner_of, path_of
from weft._tensor.generator import Generator
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import set_value
from weft.errors import CompileError, PreconditionError

Source = Callable[[Sequence[Tensor]], Value]
"""Where an input of a replay comes from, given the call's tensor arguments."""


class Capture:
    """What a function touched while it was recorded."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self.region = Pending()
        self.region.limit = sys.maxsize
        self.sources: dict[Value, Source] = {}
        self.state: dict[int, tuple[Tensor, Any]] = {}
        self.written: dict[int, Tensor] = {}
        self.grads: dict[int, tuple[Tape, Any, bool]] = {}
        self.held: dict[int, tuple[Tape, Any]] = {}  # gradients that were there before, and their kinds
        self._holders: dict[int, Tape] = {}  # by identity of the gradient
        self.modules: dict[int, tuple[Callable[[], Any], Any]] = {}
        self.drawn: list[tuple[Generator, list[int]]] = []
        self.broken = ""
        self.arguments = {id(tensor): at for at, tensor in enumerate(arguments)}
        self._recorded: set[int] = set()
        self._counted = 0

    def _is_recorded(self, value: Value) -> bool:
        region = self.region
        self._recorded.update([id(v) for v in region[self._counted :]])
        self._counted = len(region)
        return id(value) in self._recorded

    def read(self, tensor: Tensor, value: Value) -> None:
        """An operator reads a tensor."""
        if value in self.sources or self._is_recorded(value):
            return
        at = self.arguments.get(id(tensor))
        if at is not None:
            self.sources[value] = lambda arguments: arguments[at]._read()
        else:
            self.state[id(tensor)] = (tensor, (_kind(tensor), _place(tensor)))
            self.sources[value] = lambda _: tensor._read()

    def wrote(self, tensor: Tensor, old: Value) -> None:
        """A tensor got a new value in place. One that was made here is nobody else's."""
        if not self._is_recorded(old):
            self.written.setdefault(id(tensor), tensor)

    def reads_grad(self, tape: Tape) -> None:
        """A leaf's `.grad` is looked at. What a replay finds there may be another tensor."""
        grad = tape.grad
        if id(tape) in self.grads or id(tape) in self.held or (grad is not None and self._is_recorded(grad._read())):
            return
        self.held[id(tape)] = (tape, _kind_of_grad(tape))
        if grad is not None:
            self._holders[id(grad)] = tape
            self.sources.setdefault(grad._read(), lambda _: tape.grad._read())

    def place_of(self, tensor: Tensor) -> Callable[[Sequence[Tensor]], Tensor]:
        """Where a replay finds a tensor that is written, given its arguments."""
        at, tape = self.arguments.get(id(tensor)), self._holders.get(id(tensor))
        if at is not None:
            return lambda arguments: arguments[at]
        return (lambda _: tensor) if tape is None else (lambda _: tape.grad)

    def writes_grad(self, tape: Tape, *, reads: bool) -> None:
        """A leaf's `.grad` is about to change; `reads` where the outcome depends on what it is now."""
        self.grads.setdefault(id(tape), (tape, tape.grad, reads))

    def draws(self, generator: Generator) -> tuple[Value, Value]:
        """A random operator takes a draw; every replay takes another one."""
        drawn = list(generator.draw())
        self.drawn.append((generator, drawn))
        seed, offset = map(number, drawn)
        self.sources[seed] = lambda _: number(drawn[0])
        self.sources[offset] = lambda _: number(drawn[1])
        return seed, offset

    def lift(self, value: Value, getter: Callable[[], Any]) -> None:
        """A number that every replay reads anew."""
        self.sources[value] = lambda _: number(getter())

    def called(self, module: Any, depends_on: Callable[[], Any]) -> None:
        """A module runs, or an optimizer steps; the replay holds while `depends_on` says the same (flags, hooks, …)."""
        self.modules.setdefault(id(module), (depends_on, depends_on()))

    def user_derivative(self, name: str) -> None:
        """An `autograd.Function` is applied; if gradients flow through it, the capture is thrown away in the end."""

    def handles(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Every tensor that a replay must give: results, tensors written in place, gradients left behind."""
        left = [tape.grad for tape in self.new_grads()]
        return [*results, *self.written.values(), *(grad for grad in left if grad is not None)]

    def new_grads(self) -> list[Tape]:
        """The leaves whose `.grad` a replay sets."""
        return [tape for tape, before, reads in self.grads.values() if not reads or tape.grad is not before]

    def trains_what_it_wrote(self) -> bool:
        """Whether gradients still flow to the new value of a written leaf. A replay passes them to its inputs only."""
        values = [tensor._read() for tensor in self.written.values()]
        new = {id(value) for value in values if value.tape is not None and value.tape.leaf}
        live = (v for v in self.region if v.tape is not None and not v.tape.leaf and not v.tape.freed)
        return any(id(x) in new for value in live for x in value.inputs)

    def needs_value(self, what: str = "a tensor's value") -> None:
        """The function looks at a value, or meets other processes: what follows may depend on it."""
        self.broken = self.broken or f"{what} at {user_site()}"


_MOST_REPLAYS = 8
_NUMBERS = (bool, int, float, complex, str)


class Replay:
    """One captured call: the operator, where its inputs come from, and where its outputs go."""

    def __init__(self, capture: Capture, results: Sequence[Tensor], rebuild: Callable[..., Any], name: str) -> None:
        handles = capture.handles(results)
        values = [handle._read() for handle in handles]
        for handle, value in zip(handles, values, strict=True):
            capture.read(handle, value)  # an argument or state may come out as it went in
        self._rebuild = rebuild
        self._state = list(capture.state.values())
        self._modules = list(capture.modules.values())
        self._drawn = capture.drawn
        self._written = [capture.place_of(tensor) for tensor in capture.written.values()]
        self._grads = [(tape, before) for tape, before, reads in capture.grads.values() if reads]
        self._held = list(capture.held.values())
        self._new_grads = capture.new_grads()
        self._left = [tape.grad is not None for tape in self._new_grads]
        self._tapes = [value.tape for value in values]
        self._results = len(results)
        self._signature, inputs = outline(values, capture.region, name)
        self._sources = [capture.sources.get(x) or _constant(x) for x in inputs]

    def holds(self) -> bool:
        """Whether the tensors and modules that the function read are as they were."""
        return (
            all((_kind(tensor), _place(tensor)) == before for tensor, before in self._state)
            and all(depends_on() == before for depends_on, before in self._modules)
            and all(tape.grad is before for tape, before in self._grads)
            and all(_kind_of_grad(tape) == kind for tape, kind in self._held)
        )

    def run(self, arguments: Sequence[Tensor]) -> Any:
        """Record the operator on current values; hand out its outputs."""
        state = ambient()
        for generator, drawn in self._drawn:  # in the function's order, also draws whose results are not used
            drawn[:] = generator.draw()
        inputs = tuple([source(arguments) for source in self._sources])
        outputs = record(self._signature, inputs, state)
        for value, tape in zip(outputs, self._tapes, strict=True):
            if tape is None or tape.leaf:
                value.tape = tape
            elif tape.freed:
                value.tape = FREED
        rest = iter(outputs)
        results = [wrap(next(rest)) for _ in range(self._results)]
        for place in self._written:
            set_value(place(arguments), next(rest))
        for tape, left in zip(self._new_grads, self._left, strict=True):
            tape.grad = wrap(next(rest)) if left else None
        if self._written:  # the end of a step
            flush(state.pending)
        return self._rebuild(results)


def _constant(value: Value) -> Source:
    return lambda _: value


class Compiled:
    """A function that is captured once per kind of call and replayed afterwards.

    Calls are told apart by the shapes, types, gradient flags and shared storage of tensor arguments, the other
    arguments' values, gradient mode, and the state that the function reads. Python side effects happen only while
    capturing.
    """

    def __init__(self, function: Callable[..., Any], fullgraph: bool) -> None:
        update_wrapper(self, function)
        self._function = function
        self._fullgraph = fullgraph
        self._replays: dict[Any, list[Replay]] = {}
        self._tried: set[Any] = set()
        self._code = getattr(getattr(function, "__func__", function), "__code__", None)
        self._warned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = ambient()
        if state.capture is not None or state.eager or state.anomaly:
            return self._function(*args, **kwargs)
        tensors: list[Tensor] = []
        shape = (_flatten(args, tensors), _flatten(kwargs, tensors))
        key = (
            self._surroundings(),
            shape,
            tuple([_kind(t) for t in tensors]),
            _sharing(tensors),
            state.grad,
            default_dtype(),
        )
        for replay in self._replays.get(key, ()):
            if replay.holds():
                return replay.run(tensors)
        return self._capture(key, tensors, args, kwargs)

    def _surroundings(self) -> tuple[Any, ...]:
        """The globals and closed-over variables that the function names: numbers by value, other things by identity."""
        code = self._code
        if code is None:
            return ()
        function: Any = getattr(self._function, "__func__", self._function)
        space = function.__globals__
        found = [space.get(name) for name in code.co_names if name in space]
        for cell in function.__closure__ or ():
            try:
                found.append(cell.cell_contents)
            except ValueError:  # not assigned yet
                found.append(None)
        return tuple([(type(x), x) if isinstance(x, _NUMBERS) else Identity(x) for x in found])

    def _capture(self, key: Any, tensors: list[Tensor], args: Any, kwargs: Any) -> Any:
        capture = Capture(tensors)
        outer = ambient().pending
        with using(pending=capture.region, capture=capture):
            result = self._function(*args, **kwargs)
        if not capture.broken:
            self._keep(key, capture, tensors, result)
        elif self._fullgraph:
            raise CompileError(
                f"{self._name}: the function needs {capture.broken}, so it cannot be captured "
                "whole; move that out of it, or compile with fullgraph=False"
            )
        elif not self._warned:
            self._warned = True
            warnings.warn(
                f"weft.compile: {self._name} needs {capture.broken}; it runs uncaptured",
                stacklevel=3,
            )
        outer.absorb(capture.region)
        if capture.written:
            flush(outer)
        return result

    def _keep(self, key: Any, capture: Capture, tensors: list[Tensor], result: Any) -> None:
        """Make a replay of a capture, unless it would not do what the function does."""
        results: list[Tensor] = []
        rebuild = _rebuilder(_flatten(result, results))
        if any(t._alias is not None and id(owner_of(t)) in capture.written for t in tensors):
            return  # an argument is a view of something that was written: not the same thing next time
        if has_user_derivatives(capture.region) or capture.trains_what_it_wrote():
            return
        handles = capture.handles(results)
        if key not in self._tried:  # tensors that the first call has left behind may be there for the next ones
            self._tried.add(key)
            if escaping(capture.region) - {id(handle._read()) for handle in handles}:
                return
        kept = self._replays.setdefault(key, [])
        del kept[: len(kept) - _MOST_REPLAYS + 1]
        kept.append(Replay(capture, results, rebuild, f"compiled {self._name}"))

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", type(self._function).__name__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else _Bound(self, instance)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """What stands in a module under its name is pickled as that, as functions are; others with what they run."""
        name = self.__dict__.get("__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Compiled, (self._function, self._fullgraph))


class _Bound:
    """A compiled function looked up on an instance."""

    def __init__(self, compiled: Compiled, instance: Any) -> None:
        self._compiled = compiled
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(self._instance, *args, **kwargs)


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """Capture a function or module once per kind of call, and replay it without Python per operator.

    State that it reads and writes (parameters, buffers, optimizer state, random generators, learning rates) is
    fetched anew in every call. A function that looks at values runs uncaptured with a warning, or raises
    `CompileError` with `fullgraph`. `dynamic`, `backend`, `mode` and `options` are accepted for compatibility.
    """
    del dynamic, backend, mode, options
    if model is not None and not callable(model):
        raise PreconditionError(f"A callable function is expected, but {type(model)} is provided.")
    if model is None:
        return lambda function: compile(function, fullgraph=fullgraph, disable=disable)
    if disable:
        return model
    around = getattr(type(model), "_compiled", None)  # what a replica does around its module stays outside
    return Compiled(model, fullgraph) if around is None else around(model, lambda inner: Compiled(inner, fullgraph))


# --- structures of arguments and results --------------------------------------------------------------------------


class _Slot:
    """Stands for a tensor in a structure."""

    def __repr__(self) -> str:
        return "<tensor>"


SLOT = _Slot()


def _flatten(structure: Any, tensors: list[Tensor]) -> Any:
    """A hashable picture of nested containers; tensors are collected, and stand as `SLOT`."""
    if isinstance(structure, Tensor):
        tensors.append(structure)
        return SLOT
    if isinstance(structure, (list, tuple)):
        return (type(structure), tuple([_flatten(item, tensors) for item in structure]))
    if isinstance(structure, dict):
        return (type(structure), tuple([(k, _flatten(v, tensors)) for k, v in structure.items()]))
    try:
        hash(structure)
    except TypeError:
        return Identity(structure)
    return (type(structure), structure) if isinstance(structure, (bool, int, float, complex)) else _Constant(structure)


class _Constant:
    """A hashable argument that is no container."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class Identity(_Constant):
    """A thing that stands for itself: equal to itself alone, and kept alive."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _kind(tensor: Tensor) -> Any:
    value = tensor._read()
    return value.aval, value.tape is None


def _place(tensor: Tensor) -> Any:
    """Whose elements a view shows: what is written through it goes there."""
    return None if tensor._alias is None else (Identity(owner_of(tensor)), path_of(tensor))


def _kind_of_grad(tape: Tape) -> Any:
    return None if tape.grad is None else _kind(tape.grad)


def _sharing(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """For each tensor, the first one that has the same storage: a write to one is seen by the other."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(owner_of(t)), at) for at, t in enumerate(tensors)])


def _rebuilder(picture: Any) -> Callable[[Sequence[Tensor]], Any]:
    """The inverse of `_flatten`, given the tensors."""

    def build(part: Any, rest: Any) -> Any:
        if part is SLOT:
            return next(rest)
        if isinstance(part, _Constant):
            return part.value
        kind, content = part
        if issubclass(kind, dict):
            return kind((k, build(v, rest)) for k, v in content)
        if issubclass(kind, (list, tuple)):
            items = [build(item, rest) for item in content]
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        return content

    return lambda tensors: build(picture, iter(tensors))
