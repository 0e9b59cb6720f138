"""Operators with a derivative written by the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from weft._autograd.graph import second_time
from weft._base.state import ambient, using
from weft._lazy.record import record, saved_inference
from weft._lazy.runtime import filled_array
from weft._lazy.signature import Signature
from weft._lazy.value import Tape, Value
from weft._tensor.captured import leaf
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import write
from weft.errors import ArgumentError, GradientError, InPlaceError


class FunctionCtx:
    """What `forward` leaves for `backward`."""

    needs_input_grad: tuple[bool, ...] = ()
    _saved: tuple[Any, ...] = ()
    _freed = False
    _materialize = True
    _plain: tuple[int, ...] = ()
    _dirty: tuple[int, ...] = ()
    _outputs: dict[int, Value] = {}  # noqa: RUF012  replaced, never changed: results on the tape by raw result

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors, as they are now, for `backward`."""
        self._saved = tuple(None if t is None else (t._read(), t) for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors that `save_for_backward` kept."""
        if self._freed:
            raise second_time()
        return tuple(None if s is None else self._unpacked(*s) for s in self._saved)

    def _unpacked(self, value: Value, tensor: Tensor) -> Tensor:
        on_tape = self._outputs.get(id(value))
        if on_tape is not None:
            return wrap(on_tape)
        return tensor if tensor._value is value else wrap(value)

    def _release(self) -> None:
        """A backward pass has used the saved tensors, and no other one may."""
        self._saved = ()
        self._freed = True

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Results through which no gradient flows."""
        self._plain = tuple(map(id, tensors))

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Inputs that `forward` has written in place and returns."""
        self._dirty = tuple(map(id, tensors))

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` gets zeros, rather than None, for results without a gradient."""
        self._materialize = value


class Function:
    """Base of user-written operators: static `forward(ctx, *args)` and `backward(ctx, *grads)`; call `apply`."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results. Runs outside of the tape."""
        raise NotImplementedError("a Function needs a static method forward(ctx, *args)")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what `backward` needs, where `forward` takes no ctx."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """One gradient or None per argument of `forward`, given one per result."""
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads) to be differentiated")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the operator."""
        capture = ambient().capture
        if capture is not None:
            capture.user_derivative(cls.__name__)
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        inputs = [operand(a) for a in args if isinstance(a, Tensor)]
        with using(grad=False):
            if cls.setup_context is Function.setup_context:
                results = cls.forward(ctx, *args)
            else:
                results = cls.forward(*args)
                cls.setup_context(ctx, args, results)
        if not (ambient().grad and any(ctx.needs_input_grad)):
            return results
        several = isinstance(results, (tuple, list))
        listed = list(results) if several else [results]
        linked = _linked(cls, ctx, args, inputs, listed)
        return tuple(linked) if several else linked[0]


_signatures: dict[Any, Signature] = {}


def _linked(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], inputs: list[Value], results: list[Any]
) -> list[Any]:
    """The results as one application on the tape, whose derivative is the user's."""
    if any(saved is not None and saved[0].aval.inference for saved in ctx._saved):
        raise saved_inference()
    if not set(ctx._dirty) <= set(map(id, results)):
        raise GradientError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
            "modified inplace must all be outputs of the Function."
        )
    smooth = [
        r for r in results
        if isinstance(r, Tensor) and r.dtype.is_differentiable and id(r) not in ctx._plain
    ]  # fmt: skip
    if not smooth:
        return results
    operands = (*[r._read() for r in smooth], *inputs)
    avals = tuple(v.aval for v in operands)
    count = len(smooth)
    key = (cls.__qualname__, count, avals)
    signature = _signatures.get(key)
    if signature is None:
        signature = _signatures[key] = Signature(
            cls.__name__, lambda *arrays: arrays[:count], avals, device=operands[0].aval.device
        )
    values = record(signature, operands, ambient())
    custom = _custom(cls, ctx, args, results, [any(r is s for s in smooth) for r in results])
    raw = [id(value) for value in operands[:count]]

    def derivative(given: dict[int, Value], members: list[Value]) -> list[Value | None]:
        ctx._outputs = {raw[v.origin.index]: v for v in members if v.origin is not None}
        try:
            return [None] * count + custom(given)
        finally:
            ctx._outputs = {}

    made = {}
    for tensor, value in zip(smooth, values, strict=True):
        value.tape = Tape(site=value.tape.site if value.tape is not None else "")
        value.tape.custom = derivative
        value.tape.release = ctx._release
        if id(tensor) in ctx._dirty:
            if tensor.requires_grad and tensor.is_leaf:
                raise InPlaceError("a leaf Variable that requires grad has been used in an in-place operation.")
            write(tensor, value)
        made[id(tensor)] = tensor if id(tensor) in ctx._dirty else wrap(value)
    return [made.get(id(r), r) for r in results]


def _custom(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], results: list[Any], is_smooth: list[bool]
) -> Callable[[dict[int, Value]], list[Value | None]]:
    """The user's backward, over values: cotangents by result -> a gradient per tensor argument."""
    is_tensor = [isinstance(a, Tensor) for a in args]
    avals = [r._read().aval if isinstance(r, Tensor) else None for r in results]

    def custom(given: dict[int, Value]) -> list[Value | None]:
        grads: list[Any] = []
        at = 0
        for aval, smooth in zip(avals, is_smooth, strict=True):
            value = given.get(at) if smooth else None
            at += smooth
            if value is not None:
                grads.append(wrap(value))
            elif ctx._materialize and aval is not None:
                grads.append(wrap(leaf(aval, filled_array(aval, 0))))
            else:
                grads.append(None)
        found = cls.backward(ctx, *grads)
        listed = list(found) if isinstance(found, (tuple, list)) else [found]
        while len(listed) > len(is_tensor) and listed[-1] is None:
            listed.pop()
        if len(listed) != len(is_tensor):
            raise GradientError(
                f"function {cls.__name__}Backward returned an incorrect number of gradients "
                f"(expected {len(is_tensor)}, got {len(listed)})"
            )
        return [_checked(cls, g, a) for g, a, t in zip(listed, args_avals, is_tensor, strict=True) if t]

    args_avals = [a._read().aval if isinstance(a, Tensor) else None for a in args]
    return custom


def _checked(cls: type[Function], grad: Any, aval: Any) -> Value | None:
    if grad is None:
        return None
    if not isinstance(grad, Tensor):
        raise ArgumentError(f"{cls.__name__}.backward must return Tensors or None, got {type(grad).__name__}")
    if tuple(grad.shape) != aval.shape:
        raise GradientError(
            f"Function {cls.__name__}Backward returned an invalid gradient - got {list(grad.shape)} but expected shape "
            f"compatible with {list(aval.shape)}"
        )
    return grad._read()


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a `backward` that must not be differentiated itself: its results leave the tape."""

    @wraps(function)
    def once(ctx: Any, *grads: Any) -> Any:
        with using(grad=False):
            return function(ctx, *grads)

    return once
