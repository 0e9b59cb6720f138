"""What the functions of rows do once their arguments are inputs and static entries: record, and wrap what comes out."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from weft._base.state import ambient, default_device
from weft._dispatch import apply
from weft._lazy.autocast import cast_inputs
from weft._lazy.infer import call_of
from weft._lazy.value import Value
from weft._tensor.alias import layout_after, layout_of
from weft._tensor.convert import existing
from weft._tensor.generator import Generator, default_generator
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import make_view
from weft.errors import ArgumentError
from weft.ops._table import Cast, OpDef


def device_of(x: Any) -> Any:
    """The device that a factory's argument names, or the default one; None stands for the first CPU."""
    target = default_device() if x is None else x
    return None if target is None else existing(target)


def draw(generator: Generator | None) -> tuple[Value, Value]:
    """The two numbers of the next draw from a generator, by default from the one of the process."""
    source = default_generator if generator is None else generator
    if not isinstance(source, Generator):
        raise ArgumentError(f"argument 'generator' must be Generator, not {type(source).__name__}")
    capture = ambient().capture
    if capture is not None:
        return capture.draws(source)
    seed, offset = source.draw()
    return number(seed), number(offset)


def finish(op: OpDef, static: tuple[Any, ...], values: list[Value], device: Any = None) -> Any:
    """Record a row; gives the tensor of its result, or the named tuple of several."""
    call = call_of(op, static, device)
    results = apply(call, tuple(values))
    if len(results) == 1 and not op.outputs:
        return wrap(results[0])
    return _tuple_of(op)(*map(wrap, results))


def finish_view(op: OpDef, static: tuple[Any, ...], values: list[Value], source: Tensor) -> Tensor:
    """Record a row whose result is a view of `source`, its first input; gives the view."""
    call = call_of(op, static)
    if op.cast is not _NOT_CAST and (state := ambient()).autocast.enabled:
        inputs = cast_inputs(call, tuple(values), state)
        if inputs[0] is not values[0]:  # a view of the cast input, which nobody else sees
            return wrap(apply(call, inputs)[0])
    result, others = wrap(apply(call, tuple(values))[0]), tuple(values[1:])
    if op.by_layout and source._alias is not None and layout_after(layout_of(source), call, others) is None:
        return result
    return make_view(result, source, call, others)


_NOT_CAST = Cast.NONE  # members of enumerations are looked up slowly
_tuples: dict[OpDef, Any] = {}


def _tuple_of(op: OpDef) -> Any:
    """The named tuple that a row with several outputs returns."""
    kind = _tuples.get(op)
    if kind is None:
        names = op.outputs or ()
        if not names:
            return lambda *results: results
        kind = _tuples[op] = named_result(op.name.removesuffix("_dim"), names)
    return kind


def named_result(name: str, fields: Sequence[str]) -> Any:
    """A tuple type that prints as PyTorch's `return_types`."""

    def show(self: Any) -> str:
        inner = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{inner})"

    return type(name, (namedtuple(name, fields),), {"__slots__": (), "__repr__": show})
