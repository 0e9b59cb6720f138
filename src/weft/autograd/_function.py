"""`Function`: operators whose derivative the user writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

from weft._autograd.engine import check_finite
from weft._autograd.graph import second_backward_error
from weft._base.state import ambient, using
from weft._lazy.aval import Aval
from weft._lazy.record import record, saved_inference
from weft._lazy.runtime import filled_array
from weft._lazy.signature import Signature
from weft._lazy.tape import Tape
from weft._lazy.value import Value
from weft._tensor.capture_hooks import leaf
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import as_cotangent, as_gradient_of, write
from weft.errors import ArgumentError, GradientError, InPlaceError, ShapeError

F = TypeVar("F", bound=Callable[..., Any])


class FunctionCtx:
    """What `forward` passes on to `backward`: saved tensors, options, and attributes of the user's."""

    needs_input_grad: tuple[bool, ...] = ()
    _saved: tuple[Any, ...] = ()
    _saved_for_forward: tuple[Any, ...] = ()
    _freed = False
    _once = False
    _unread = True
    _materialize = True
    _plain: tuple[int, ...] = ()
    _dirty: tuple[int, ...] = ()
    _outputs: dict[int, Value] = {}  # noqa: RUF012  replaced, never changed: results on the tape by raw result

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors, with their present values, for `backward`."""
        if any(self.needs_input_grad):
            for at, t in enumerate(tensors):
                if t is not None and not isinstance(t, Tensor):
                    raise ArgumentError(
                        f"save_for_backward can only save variables, but argument {at} is of type {kind_of(t)}"
                    )
        self._saved = tuple((t._read(), t) if isinstance(t, Tensor) else None for t in tensors)

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Save tensors for `jvp`, which finds them in `saved_tensors`."""
        self._saved_for_forward = tuple((t._read(), t) if isinstance(t, Tensor) else None for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors that `save_for_backward` kept."""
        if self._freed:
            raise second_backward_error()
        if self._once and not self._unread:
            raise GradientError(
                "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the "
                "autograd.Function. Either access saved_tensors only once, or set clear_saved_tensors_on_access=False."
            )
        self._unread = False
        return tuple(None if s is None else self._unpacked(*s) for s in self._saved)

    def _unpacked(self, value: Value, tensor: Tensor) -> Tensor:
        on_tape = self._outputs.get(id(value))
        if on_tape is not None:
            return wrap(on_tape)
        return tensor if tensor._value is value else wrap(value)

    def _release(self) -> None:
        """Free the saved tensors after a backward pass; reading them again is an error."""
        self._saved = ()
        self._freed = True

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare results through which no gradient flows."""
        for t in tensors:
            if not isinstance(t, Tensor):
                raise GradientError(f"mark_non_differentiable only accepts variable arguments, but got {kind_of(t)}")
        self._plain = tuple(map(id, tensors))

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare inputs that `forward` has written in place; it must return them."""
        for at, t in enumerate(tensors):
            if not isinstance(t, Tensor):
                raise GradientError(f"mark_dirty can only accept variables, but argument {at} is of type {kind_of(t)}")
        self._dirty = tuple(map(id, tensors))

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether `backward` gets zeros, rather than None, for results without a gradient."""
        self._materialize = value


class Function:
    """The base of user-written operators: static `forward(ctx, *args)` and `backward(ctx, *grads)`; called by `apply`.

    `vjp` is another name of `backward`. With `clear_saved_tensors_on_access`, `ctx.saved_tensors` can be read only
    once.
    """

    clear_saved_tensors_on_access = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results. It runs outside the tape."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what `backward` needs, if `forward` takes no ctx."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Given a gradient for each result, return one gradient (or None) for each argument of `forward`."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Given a tangent for each argument of `forward` (None for what is no tensor), return one for each result."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: a function is called by `apply`, without an instance."""
        raise GradientError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the operator."""
        capture = ambient().capture
        if capture is not None:
            capture.user_derivative(cls.__name__)
        ctx = FunctionCtx()
        ctx._once = cls.clear_saved_tensors_on_access
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
        outputs = list(results) if several else [results]
        linked = _linked(cls, ctx, args, inputs, outputs)
        return tuple(linked) if several else linked[0]


_signatures: dict[Any, Signature] = {}


def _linked(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], inputs: list[Value], results: list[Any]
) -> list[Any]:
    """The results as one application on the tape, with the user's derivative."""
    if any(saved is not None and saved[0].aval.inference for saved in ctx._saved):
        raise saved_inference()
    if not set(ctx._dirty) <= set(map(id, results)):
        raise GradientError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
            "modified inplace must all be outputs of the Function."
        )
    _check_dirty(ctx, args, results)
    smooth = [r for r in results if isinstance(r, Tensor) and r.dtype.is_differentiable and id(r) not in ctx._plain]
    if not smooth:
        return results
    operands = (*[r._read() for r in smooth], *inputs)
    avals = tuple(v.aval for v in operands)
    count = len(smooth)
    key = (cls.__qualname__, count, avals)
    signature = _signatures.get(key)
    if signature is None:
        names = [aval.names or (None,) * len(aval.shape) for aval in avals[:count]]
        signature = _signatures[key] = Signature(
            cls.__name__, lambda *arrays: arrays[:count], avals, device=operands[0].aval.device
        ).with_names(names)
    values = record(signature, operands, ambient())
    is_smooth = [any(r is s for s in smooth) for r in results]
    custom = _custom(cls, ctx, args, results, is_smooth)
    raw = [id(value) for value in operands[:count]]
    forward = None if cls.jvp is Function.jvp else partial(_pushed, cls, ctx, args, is_smooth)

    def derivative(cotangents: dict[int, Value], members: list[Value]) -> list[Value | None]:
        ctx._outputs = {raw[v.origin.index]: v for v in members if v.origin is not None}
        try:
            gradients = custom(cotangents)
        finally:
            ctx._outputs = {}
        if ambient().anomaly:
            check_finite(members[0], gradients)
        return [None] * count + gradients

    outputs = {}
    for tensor, value in zip(smooth, values, strict=True):
        value.tape = Tape(site=value.tape.site if value.tape is not None else "")
        value.tape.custom = derivative
        value.tape.forward = forward
        value.tape.release = ctx._release
        if id(tensor) in ctx._dirty:
            if tensor.requires_grad and tensor.is_leaf:
                raise InPlaceError("a leaf Variable that requires grad has been used in an in-place operation.")
            write(tensor, value)
        outputs[id(tensor)] = tensor if id(tensor) in ctx._dirty else wrap(value)
    return [outputs.get(id(r), r) for r in results]


def _check_dirty(ctx: FunctionCtx, args: tuple[Any, ...], results: list[Any]) -> None:
    """Raise if a view that is marked as written is not an argument, or not the only result."""
    arguments = set(map(id, args))
    for tensor in results:
        if id(tensor) not in ctx._dirty:
            continue
        if id(tensor) not in arguments and tensor._alias is not None:
            raise GradientError(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
                "should be passed to ctx.mark_dirty()."
            )
        if tensor._is_view() and len(results) > 1:
            raise GradientError(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
                "return more than one Tensor. This is not supported by the current autograd engine. You should either "
                "make sure the input is not a view (using .clone() for example) or make your Function only return one "
                "Tensor (potentially splitting it into two Functions: one doing the inplace that returns a single "
                "Tensor and a second one that does the other operations)."
            )


def _derivative_of(cls: type[Function]) -> Callable[..., Any]:
    """The user's derivative, from `backward` or from `vjp`."""
    if cls.vjp is Function.vjp:
        return cls.backward
    if cls.backward is not Function.backward:
        raise GradientError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement "
            "one of them."
        )
    return cls.vjp


def _custom(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], results: list[Any], is_smooth: list[bool]
) -> Callable[[dict[int, Value]], list[Value | None]]:
    """The user's `backward` over values: cotangents by number of the result -> a gradient for each tensor argument."""
    is_tensor = [isinstance(a, Tensor) for a in args]
    avals = [r._read().aval if isinstance(r, Tensor) else None for r in results]

    def custom(cotangents: dict[int, Value]) -> list[Value | None]:
        grads: list[Any] = []
        at = 0
        for aval, smooth in zip(avals, is_smooth, strict=True):
            value = cotangents.get(at) if smooth else None
            at += smooth
            if value is not None:
                grads.append(wrap(value if aval is None else as_gradient_of(aval, value)))
            elif ctx._materialize and aval is not None:
                grads.append(wrap(leaf(aval, filled_array(aval, 0))))
            else:
                grads.append(None)
        gradients = _derivative_of(cls)(ctx, *grads)
        gradients = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        while len(gradients) > len(is_tensor) and gradients[-1] is None:
            gradients.pop()
        if len(gradients) != len(is_tensor):
            raise GradientError(
                f"function {cls.__name__}Backward returned an incorrect number of gradients "
                f"(expected {len(is_tensor)}, got {len(gradients)})"
            )
        inputs = [grad for grad, wanted in zip(gradients, is_tensor, strict=True) if wanted]
        return [
            _fitted(f"{cls.__name__}Backward", *each)
            for each in zip(range(len(input_avals)), inputs, input_avals, strict=True)
        ]

    input_avals = [a._read().aval for a in args if isinstance(a, Tensor)]
    return custom


def _pushed(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], is_smooth: list[bool], tangents: list[Value | None]
) -> list[Value | None]:
    """The tangents of results on the tape by the user's `jvp`, from those of the application's inputs."""
    count = sum(is_smooth)
    pending = iter(tangents[count:])
    arguments = [_tangent(ctx, a, next(pending)) if isinstance(a, Tensor) else None for a in args]
    kept, ctx._saved = ctx._saved, ctx._saved_for_forward
    try:
        results = cls.jvp(ctx, *arguments)
    finally:
        ctx._saved = kept
    every = list(results) if isinstance(results, (tuple, list)) else [results]
    return [None if x is None else operand(x) for x, smooth in zip(every, is_smooth, strict=True) if smooth]


def _tangent(ctx: FunctionCtx, x: Tensor, tangent: Value | None) -> Tensor | None:
    """The tangent of an argument as `jvp` gets it."""
    if tangent is not None:
        return wrap(tangent)
    aval = x._read().aval
    return wrap(leaf(aval, filled_array(aval, 0))) if ctx._materialize else None


def _fitted(name: str, at: int, grad: Any, aval: Aval) -> Value | None:
    """A gradient cast to the type of its input; if the input's shape broadcasts to its shape, it is summed to that."""
    if grad is None:
        return None
    if not isinstance(grad, Tensor):
        raise GradientError(f"expected Variable or None (got {kind_of(grad)})")
    if grad.is_complex() and not aval.dtype.is_complex:
        raise GradientError(f"Function {name} returned a complex gradient at index {at} for a real input")
    if tuple(grad.shape) != tuple(aval.size):
        try:
            grad = grad.sum_to_size(tuple(aval.size))
        except ShapeError:
            raise GradientError(
                f"Function {name} returned an invalid gradient at index {at} - got {list(grad.shape)} but expected "
                f"shape compatible with {list(aval.size)}"
            ) from None
    value = (grad if grad.dtype is aval.dtype else grad.to(aval.dtype))._read()
    return as_cotangent(value, aval, f"the gradient at index {at} of function {name}")


def once_differentiable(function: F) -> F:
    """Mark a `backward` that cannot be differentiated itself: its results are not on the tape."""

    @wraps(function)
    def once(ctx: Any, *grads: Any) -> Any:
        with using(grad=False):
            return function(ctx, *grads)

    return cast("F", once)
