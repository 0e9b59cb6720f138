"""`Function`: operators whose derivative the user writes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial, wraps
from inspect import signature as signature_of
from typing import TYPE_CHECKING, Any, TypeVar, cast

from weft._autograd.anomaly import check_finite
from weft._base.capture import active_capture
from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Arg, Args, Result
from weft._lazy.aval import Aval
from weft._lazy.external import taken_in
from weft._lazy.record import record, saved_inference
from weft._lazy.role import Interior
from weft._lazy.runtime import filled_array
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.cotangents import as_cotangent, as_gradient_of
from weft._tensor.examples import Examples, VmapInfo
from weft._tensor.kind_names import kind_of
from weft._tensor.leaf import leaf
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import write
from weft.autograd._context import BackwardCFunction as BackwardCFunction
from weft.autograd._context import FunctionCtx as FunctionCtx
from weft.errors import GradientError, InPlaceError, ShapeError

if TYPE_CHECKING:
    from weft.autograd._context import Ctx

F = TypeVar("F", bound=Callable[..., Any])


class FunctionMeta(type):
    """The type of users' functions: gives each of them a class of nodes, `_backward_cls`."""

    def __init__(cls, name: str, bases: tuple[type, ...], fields: dict[str, object]) -> None:
        super().__init__(name, bases, fields)
        cls._backward_cls = type(f"{name}Backward", (BackwardCFunction,), {"_forward_cls": cls, "__module__": __name__})


class Function(metaclass=FunctionMeta):
    """The base of user-written operators: static `forward(ctx, *args)` and `backward(ctx, *grads)`; called by `apply`.

    `vjp` is another name of `backward`. With `clear_saved_tensors_on_access`, `ctx.saved_tensors` can be read only
    once. Under `vmap`, a static `vmap(info, in_dims, *args)` is called if there is one; otherwise, `forward` and
    `backward` run for one example, as with `generate_vmap_rule`.
    """

    clear_saved_tensors_on_access = False
    generate_vmap_rule = False
    _of_no_tensors = False  # whether `ctx` has nothing that depends on the tensors of a call but their types
    _backward_cls: type[BackwardCFunction]

    def __init__(self, *_: object, **__: object) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    @staticmethod
    def forward(*args: Arg, **kwargs: Arg) -> Result:
        """Compute the results. It runs outside the tape."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Args, output: Result) -> None:
        """Save what `backward` needs, if `forward` takes no ctx."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Ctx, *grads: Arg) -> Result:
        """Given a gradient for each result, return one gradient (or None) for each argument of `forward`."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Ctx, *tangents: Arg) -> Result:
        """Given a tangent for each argument of `forward` (None for what is no tensor), return one for each result."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Arg) -> tuple[Result, Result]:
        """Compute the results for all examples, and the dim that counts the examples in each (None where none does).

        `in_dims` says this of `args`. It is used where no derivatives are taken inside of the mapped function.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    def __call__(self, *args: Arg, **kwargs: Arg) -> list[Value | None]:
        """Raises: a function is called by `apply`, without an instance."""
        raise GradientError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method."
        )

    @classmethod
    def apply(cls, *args: Arg, **kwargs: Arg) -> Result:
        """Call the operator."""
        capture = active_capture()
        if capture.takes_calls:
            return capture.call_whole(cls.apply, args, kwargs)
        has_setup = cls.setup_context is not Function.setup_context
        if has_setup:
            bound = signature_of(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        capture.user_derivative(cls.__name__)
        if cls.vmap is not Function.vmap:
            if cls.generate_vmap_rule:
                raise GradientError(
                    f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden "
                    "vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod "
                    "to avoid ambiguity."
                )
            if isinstance(capture, Examples) and capture.takes_rule(args):
                return capture.by_rule(cls.vmap, args)
        ctx = cls._backward_cls()
        ctx._once = cls.clear_saved_tensors_on_access
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        inputs = [operand(a) for a in args if isinstance(a, Tensor)]
        # What `forward` computes has the user's derivative and none of its own.
        with using(grad=False):
            if has_setup:
                results = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, results)
            else:
                results = cls.forward(ctx, *args, **kwargs)
        if not (ambient().grad and any(ctx.needs_input_grad)):
            return results
        several = isinstance(results, (tuple, list))
        outputs = list(results) if several else [results]
        linked = _linked(cls, ctx, args, inputs, outputs)
        return tuple(linked) if several else linked[0]

    @classmethod
    def _derivative(cls) -> AnyCallable:
        """The user's derivative, from `backward` or from `vjp`."""
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise GradientError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        return cls.vjp


# no cell: a cache, keyed by all that its entries depend on
_signatures: dict[Any, Signature] = {}


def _linked(
    cls: type[Function], ctx: BackwardCFunction, args: Args, inputs: list[Value], results: list[Arg]
) -> list[Arg]:
    """The results as one application on the tape, with the user's derivative."""
    if any(saved is not None and saved.aval.inference for saved in ctx._saved):
        raise saved_inference()
    if not set(ctx._dirty) <= set(map(id, results)):
        raise GradientError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
            "modified inplace must all be outputs of the Function."
        )
    _check_dirty(ctx, args, results)
    smooth = [r for r in results if isinstance(r, Tensor) and r.dtype.is_differentiable and id(r) not in ctx._plain]
    plain = {id(r): r.detach() for r in results if id(r) in ctx._plain and r.requires_grad}
    if not smooth:
        return [plain.get(id(r), r) for r in results]
    operands = tuple([taken_in(x) for x in (*[r._read() for r in smooth], *inputs)])
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
    # By identity, since `==` on tensors compares elements.
    is_smooth = [any(r is s for s in smooth) for r in results]
    kind = _RepeatableDerivative if cls._of_no_tensors else _Derivative
    derivative = kind(ctx, _custom(cls, args, results, is_smooth), count)
    forward = None if cls.jvp is Function.jvp else partial(_pushed, cls, ctx, args, is_smooth)
    derivative.enter(values)

    outputs = plain
    for tensor, value in zip(smooth, values, strict=True):
        assert isinstance(value.role, Interior), "it has just entered the tape"
        value.role.forward = forward
        if id(tensor) in ctx._dirty:
            if tensor.requires_grad and tensor.is_leaf:
                raise InPlaceError("a leaf Variable that requires grad has been used in an in-place operation.")
            write(tensor, value)
        outputs[id(tensor)] = tensor if id(tensor) in ctx._dirty else wrap(value)
    ctx._recorded(operands[:count])
    return [outputs.get(id(r), r) for r in results]


class _Derivative:
    """The user's derivative of a call, as the tape of the results has it.

    node    the node of the call
    first   the number of inputs, before the arguments, that are the raw results
    """

    __slots__ = ("_custom", "first", "node")

    def __init__(
        self,
        node: BackwardCFunction,
        custom: Callable[[BackwardCFunction, dict[int, Value]], list[Value | None]],
        first: int,
    ) -> None:
        self.node = node
        self.first = first
        self._custom = custom

    def enter(self, values: Sequence[Value]) -> None:
        """Give the results of the call, which are on the tape, tapes of their own with this derivative."""
        for value in values:
            site = value.role.site if isinstance(value.role, Interior) else ""
            value.role = Interior(site=site, custom=self, release=self.node._release)
            self.node.put(value)

    def __call__(self, cotangents: dict[int, Value], members: list[Arg]) -> list[Value | None]:
        """The gradients of the inputs; `members` are the results that take part."""
        for member in members:
            self.node.put(member)
        gradients = self._custom(self.node, cotangents)
        state = ambient()
        if state.watchers.anomaly and state.watchers.check_nan:
            check_finite(members[0], gradients)
        return [None] * self.first + gradients


class _RepeatableDerivative(_Derivative):
    """The derivative of a function that saves no tensors, so that a captured call of it can be repeated."""

    __slots__ = ()

    def link(self, values: Sequence[Value]) -> None:
        """Make it the derivative of the results of another call, which has a node of its own."""
        node = copy(self.node)
        node._references = {}
        _RepeatableDerivative(node, self._custom, self.first).enter(values)


def _check_dirty(ctx: FunctionCtx, args: Args, results: list[Arg]) -> None:
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


def _custom(
    cls: type[Function], args: Args, results: list[Arg], is_smooth: list[bool]
) -> Callable[[FunctionCtx, dict[int, Value]], list[Value | None]]:
    """The user's `backward` over values: cotangents by number of the result -> a gradient for each tensor argument."""
    is_tensor = [isinstance(a, Tensor) for a in args]
    avals = [r._read().aval if isinstance(r, Tensor) else None for r in results]

    def custom(ctx: FunctionCtx, cotangents: dict[int, Value]) -> list[Value | None]:
        grads: list[Any] = []
        at = 0
        for aval, smooth in zip(avals, is_smooth, strict=True):
            value = cotangents.get(at) if smooth else None
            at += smooth
            if value is not None:
                grads.append(wrap(value if aval is None else as_gradient_of(aval, value)))
            # As in PyTorch: `backward` gets zeros rather than None unless it says otherwise.
            elif ctx._materialize and aval is not None:
                grads.append(wrap(leaf(aval, filled_array(aval, 0))))
            else:
                grads.append(None)
        gradients = cls._derivative()(ctx, *grads)
        gradients = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        # PyTorch allows trailing Nones, for arguments that `forward` does not have.
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
    cls: type[Function], ctx: FunctionCtx, args: Args, is_smooth: list[bool], tangents: list[Value | None]
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
    return [None if x is None else taken_in(operand(x)) for x, smooth in zip(every, is_smooth, strict=True) if smooth]


def _tangent(ctx: FunctionCtx, x: Tensor, tangent: Value | None) -> Tensor | None:
    """The tangent of an argument as `jvp` gets it."""
    if tangent is not None:
        return wrap(tangent)
    aval = x._read().aval
    return wrap(leaf(aval, filled_array(aval, 0))) if ctx._materialize else None


def _fitted(name: str, at: int, grad: object, aval: Aval) -> Value | None:
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


_ContextMethodMixin = FunctionCtx  # the name by which libraries import it


def once_differentiable(function: F) -> F:
    """Mark a `backward` that cannot be differentiated itself; a backward pass over its results raises."""

    @wraps(function)
    def once(ctx: Ctx, *grads: Arg) -> Result:
        with using(grad=False):
            results = function(ctx, *grads)
        if not (ambient().grad and any(isinstance(grad, Tensor) and grad.requires_grad for grad in grads)):
            return results
        parts = results if isinstance(results, tuple) else (results,)
        refusing = _Once.apply(*[x.detach().requires_grad_() if isinstance(x, Tensor) else x for x in parts])
        return refusing if isinstance(results, tuple) else refusing[0]

    return cast("F", once)


class _Once(Function):
    """Results of a derivative that has no derivative itself."""

    @staticmethod
    def forward(*results: Arg) -> Result:
        return tuple([x.view_as(x) if isinstance(x, Tensor) else x for x in results])

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Args, output: Result) -> None:
        """Nothing is saved."""

    @staticmethod
    def backward(ctx: Ctx, *grads: Arg) -> Result:
        raise GradientError("trying to differentiate twice a function that was marked with @once_differentiable")


class InplaceFunction(Function):
    """`Function`, for programs that name this class."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
