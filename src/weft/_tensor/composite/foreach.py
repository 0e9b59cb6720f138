"""Functions over lists of tensors, and those of scalers, by which optimizers that users write update all parameters.

PyTorch computes such a list by one kernel. Here each tensor is recorded by itself, and one program has all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from weft._base.guards import is_list_or_tuple
from weft._base.state import using
from weft._base.types import AnyCallable, Arg
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.kind_names import kind_and_advice, kind_of
from weft._tensor.tensor import Results, Tensor
from weft.errors import ArgumentError, ShapeError
from weft.ops._table import NO_METHOD

_UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma"),
    *("log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt"),
    *("tan", "tanh", "trunc"),
)
_WITH_OPERANDS = {
    **{name: name for name in ("add", "sub", "mul", "div", "pow", "clamp_max", "clamp_min", "lerp")},
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "addcdiv": "addcdiv",
    "addcmul": "addcmul",
}
"""The method that each function calls, of those that have an in-place form."""

_OPERANDS = (
    *("other", "tensors1", "tensor1", "tensor2", "src", "mat2", "scalar", "scalars", "exponent", "weight", "weights"),
    "value",
)
"""The names of operands, in the order of their positions."""


def _checked(name: str, tensors: Arg) -> Sequence[Tensor]:
    if not is_list_or_tuple(tensors):
        raise ArgumentError(f"{name}(): argument 'self' must be tuple of Tensors, not {kind_of(tensors)}")
    if not tensors:
        raise ShapeError("Tensor list must have at least one tensor.")
    for at, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"{name}(): expected Tensor as element {at} in argument 0, but got {kind_and_advice(tensor)}"
            )
    return tensors


def _for_each(operand: object, count: int) -> Sequence[Arg]:
    """An operand of each tensor: an entry of a list or of a vector, or what is the same for all."""
    if not is_list_or_tuple(operand) and not (isinstance(operand, Tensor) and operand.ndim):
        return [operand] * count
    parts = operand.unbind() if isinstance(operand, Tensor) else operand
    if len(parts) != count:
        if all(isinstance(part, Tensor) for part in parts):
            raise ShapeError(f"Tensor lists must have the same number of tensors, got {count} and {len(parts)}")
        raise ShapeError("Tensor list must have same number of elements as scalar list.")
    return parts


def _define(name: str, call: AnyCallable, doc: str, *, in_place: bool = False) -> None:
    """Define `_foreach_NAME`, which calls a function for each tensor and its operands; in place it returns the list."""
    public = f"_foreach_{name}"

    @composite(public, doc=doc, public=NO_METHOD)
    def function(self: object, *operands: object, **options: object) -> Results:
        tensors = _checked(public, self)
        operands = (*operands, *[options.pop(key) for key in _OPERANDS if key in options])
        columns = [_for_each(operand, len(tensors)) for operand in operands]
        results = [call(*row, **options) for row in zip(tensors, *columns, strict=True)]
        return self if in_place else tuple(results)


def _scaled(name: str, x: Tensor, a: Tensor, b: Tensor, value: Arg = 1) -> Tensor:
    return getattr(x, name)(a, b, value=value)


def _by_name(name: str, x: Tensor, *operands: Arg, **options: Arg) -> Tensor:
    return getattr(x, name)(*operands, **options)


def _method(name: str) -> AnyCallable:
    if name.startswith("addc"):
        return partial(_scaled, name)
    return partial(_by_name, name)


for _name, _called in {**{name: name for name in _UNARY}, **_WITH_OPERANDS}.items():
    if _name != "pow":
        _define(_name, _method(_called), f"`{_name}` of each tensor of a list, with its operands.")
    _define(f"{_name}_", _method(f"{_called}_"), f"`{_name}_` of each tensor of a list, in place.", in_place=True)
for _name in ("zero_", "copy_"):
    _define(_name, _method(_name), f"`{_name}` of each tensor of a list, in place.", in_place=True)
for _name in ("clone", "max", "mm"):
    _define(_name, _method(_name), f"`{_name}` of each tensor of a list.")


def _norm(x: Tensor, ord: object = 2, dtype: object = None) -> Tensor:
    return op.vector_norm(x, ord, dtype=dtype)


def _power_sum(x: Tensor, ord: object = 2, dtype: object = None) -> Tensor:
    return op.sum(op.pow(op.abs(x if dtype is None else x.to(dtype)), ord))


_define("norm", _norm, "The `ord`-norm of all elements of each tensor of a list.")
_define("powsum", _power_sum, "The sum of the absolute values to the power of `ord`, of each tensor of a list.")


@composite("_foreach_pow", public=NO_METHOD)
def foreach_pow(self: Arg, exponent: object) -> tuple[Tensor, ...]:
    """Powers of each tensor of a list, by its exponent; or of one number, by each tensor of a list."""
    if not isinstance(self, list | tuple):
        return tuple([self**x for x in _checked("_foreach_pow", exponent)])
    tensors = _checked("_foreach_pow", self)
    return tuple([x**y for x, y in zip(tensors, _for_each(exponent, len(tensors)), strict=True)])


@composite("_amp_foreach_non_finite_check_and_unscale_", public=NO_METHOD)
def amp_foreach_unscale_(self: Arg, found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients by `inv_scale`, in place, and set `found_inf` to 1 if one was infinite or NaN."""
    with using(grad=False):
        one = op.ones((), dtype=found_inf.dtype, device=found_inf.device)
        *_, infinite = op.unscale_gradients(self, op.reshape(found_inf, ()), one)
        found_inf.copy_(infinite)
        for grad in self:
            grad.mul_(inv_scale)


@composite("_amp_update_scale_", public=NO_METHOD)
def amp_update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """Shrink a scale, in place, if `found_inf` is not 0, or let it grow after `growth_interval` steps without."""
    state = [op.reshape(x, ()) for x in (self, growth_tracker, found_inf)]
    with using(grad=False):
        scale, steps = op.updated_scale(*state, scale_growth_factor, scale_backoff_factor, growth_interval)
        growth_tracker.copy_(steps)
        return self.copy_(scale)
