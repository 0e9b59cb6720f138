"""Losses that compare numbers elementwise."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from weft._base.types import Arg
from weft.errors import DomainError, DTypeError, ShapeError, ValueDomainError, ValueRangeError
from weft.ops._autocast import Banned, Cast, PerDevice
from weft.ops._dims import Sizes, broadcast_shapes
from weft.ops._kinds import Array, Operand, Real
from weft.ops._neural import FLOAT_MEAN, element_row, like, reduced, reduction_name, require_float, size_of
from weft.ops._reduce import wide
from weft.ops._table import IN_FLOAT32, IN_FUNCTIONAL, Check, InputType, Promote, Public, Types
from weft.ops._type_names import scalar_name


def _weighted(loss: Array, weight: Array | None, input: Array) -> Array:
    """The losses times their weights, if there are any."""
    if weight is None:
        return loss
    if weight.shape != input.shape:
        raise ValueRangeError("Weights and input must have the same size.")
    return loss * weight


def _reduced(loss: Array, weight: Array | None, *reduction: Arg) -> Array:
    """The reduced loss; a mean of weighted losses divides by the sum of the weights."""
    if weight is None or reduction_name(*reduction) != "mean":
        return reduced(loss, *reduction)
    return jnp.sum(loss) / jnp.sum(weight)


def _refuse_bools(*arrays: Array) -> None:
    """Raise `RuntimeError` for what cannot be subtracted."""
    if any(x.dtype == jnp.bool_ for x in arrays):
        raise DTypeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )


def _sizes(input: Sizes, target: Sizes) -> str:
    return (
        f"Using a target size (torch.Size({list(target)})) that is different to the input size "
        f"(torch.Size({list(input)}))"
    )


def _broadcast(types: Mapping[str, InputType]) -> str:
    """The warning for a target of another shape than the input; "" for the same shape."""
    input, target = types["input"].shape, types["target"].shape
    if input == target:
        return ""
    return (
        f"{_sizes(input, target)}. This will likely lead to incorrect results due to broadcasting. "
        "Please ensure they have the same size."
    )


@element_row(
    types=Types(promote=Promote.COMMON, autocast=Cast.FLOAT32), public=IN_FUNCTIONAL, check=Check(inputs=_broadcast)
)
def mse_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Array | None = None,
) -> Array:
    """Squared differences."""
    if not jnp.iscomplexobj(input):
        require_float(input, "mse_cpu")
    broadcast_shapes(input.shape, target.shape)
    loss = _weighted(jnp.square(input - target), weight, input)
    return _reduced(loss, weight, reduction, size_average, reduce)


@element_row(types=IN_FLOAT32, public=IN_FUNCTIONAL, check=Check(inputs=_broadcast))
def l1_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Array | None = None,
) -> Array:
    """Absolute differences."""
    broadcast_shapes(input.shape, target.shape)
    _refuse_bools(input, target)
    gap = input - target
    if reduction == "mean" and not jnp.issubdtype(gap.dtype, jnp.inexact):
        raise DTypeError(f"{FLOAT_MEAN} Got: {scalar_name(gap)}")
    loss = _weighted(size_of(gap), weight, input)
    return _reduced(loss, weight, reduction, size_average, reduce)


def _near_square(gap: Array, edge: Array) -> tuple[Array, Array]:
    """Half the squares of the differences, for use below `edge`, and all absolute differences."""
    size = size_of(gap)
    # The squares of large differences are not used, and may overflow: their gradient would be 0 times inf.
    return 0.5 * jnp.square(jnp.where(size < edge, gap, 0)), size


def _require_no_less_than_zero(beta: float) -> None:
    if beta < 0:
        raise ShapeError("smooth_l1_loss does not support negative values for beta.")


@element_row(
    types=Types(promote=Promote.COMMON, autocast=Cast.FLOAT32, exact_numbers=True),
    public=IN_FUNCTIONAL,
    check=Check(limits=_require_no_less_than_zero, inputs=_broadcast),
)
def smooth_l1_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: Real = 1.0,
) -> Array:
    """d**2 / (2 beta) where the absolute difference d is below `beta`, else d - beta / 2."""
    broadcast_shapes(input.shape, target.shape)
    require_float(input, "smooth_l1_cpu")
    gap = wide(input) - wide(target)
    edge = like(beta, gap)
    half, size = _near_square(gap, edge)
    # With `beta` 0 it is the L1 loss, and no difference is below it.
    loss = jnp.where(size < edge, half / jnp.where(edge == 0, 1, edge), size - 0.5 * edge)
    return reduced(loss.astype(input.dtype), reduction, size_average, reduce)


def _require_above_zero(delta: float) -> None:
    if delta <= 0:
        raise ShapeError("huber_loss does not support non-positive values for delta.")


@element_row(
    types=Types(promote=Promote.NONE, autocast=Cast.FLOAT32, exact_numbers=True),
    public=IN_FUNCTIONAL,
    check=Check(limits=_require_above_zero, inputs=_broadcast),
)
def huber_loss(
    input: Array, target: Array, reduction: str = "mean", delta: Real = 1.0, weight: Array | None = None
) -> Array:
    """d**2 / 2 where the absolute difference d is below `delta`, else delta * (d - delta / 2)."""
    broadcast_shapes(input.shape, target.shape)
    require_float(input, "huber_cpu")
    gap = wide(input) - wide(target)
    edge = like(delta, gap)
    half, size = _near_square(gap, edge)
    loss = jnp.where(size < edge, half, edge * (size - 0.5 * edge))
    return reduced(_weighted(loss.astype(input.dtype), weight, input), reduction)


def _check_same(input: Array, target: Array) -> None:
    if input.shape != target.shape:
        raise ValueRangeError(
            f"{_sizes(input.shape, target.shape)} is deprecated. Please ensure they have the same size."
        )


def _outside(input: Array) -> Array:
    return ~((input >= 0) & (input <= 1))


@jax.custom_jvp
def _surprise(x: Array, target: Array) -> Array:
    """-(t log x + (1 - t) log(1 - x)), with logarithms of at least -100."""
    return (target - 1) * jnp.maximum(jnp.log1p(-x), -100) - target * jnp.maximum(jnp.log(x), -100)


@_surprise.defjvp
def _surprise_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    x, target = primals
    dx, dtarget = tangents
    # PyTorch's derivative: it bounds the divisor, since at 0 and 1 the loss is bounded and its exact slope is not.
    slope = (x - target) / jnp.maximum((1 - x) * x, 1e-12)
    return _surprise(x, target), slope * dx + (jnp.log1p(-x) - jnp.log(x)) * dtarget


_UNSAFE = Banned(
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


@element_row(
    types=Types(autocast=PerDevice(cpu=Cast.FLOAT32, accelerator=_UNSAFE)),
    public=IN_FUNCTIONAL,
    check=Check(elements=_outside, text="all elements of input should be between 0 and 1", error=DomainError),
)
def binary_cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x, with logarithms of at least -100."""
    _check_same(input, target)
    require_float(input, "binary_cross_entropy")
    if target.dtype != input.dtype:
        raise DTypeError(f"Found dtype {scalar_name(target)} but expected {scalar_name(input)}")
    loss = _surprise(wide(input), wide(target)).astype(input.dtype)
    return reduced(loss if weight is None else loss * weight, reduction, size_average, reduce)


@element_row(types=IN_FLOAT32, public=Public(function=False, method="", also=("nn.functional",)))
def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Array:
    """Binary cross entropy of sigmoid(input); the loss of positive targets is multiplied by `pos_weight`."""
    if input.shape != target.shape:
        sizes = (f"torch.Size({list(x.shape)})" for x in (target, input))
        raise ValueRangeError("Target size ({}) must be the same as input size ({})".format(*sizes))
    require_float(input, "log_sigmoid_cpu")
    _refuse_bools(target)
    if not jnp.issubdtype(target.dtype, jnp.floating):  # the loss has the type of the target
        names = scalar_name(input), scalar_name(target)
        raise DTypeError("result type {} can't be cast to the desired output type {}".format(*names))
    x, t = wide(input), wide(target)
    # The logarithm of a sigmoid that has become 0 would be infinite; this one is nearly x there.
    log_p = jax.nn.log_sigmoid(x)
    positive = 1 if pos_weight is None else (wide(pos_weight) - 1) * t + 1
    loss = ((1 - t) * x - positive * log_p).astype(target.dtype)
    weighted = loss if weight is None else (loss * weight).astype(loss.dtype)
    return reduced(weighted, reduction, size_average, reduce)


@element_row(types=IN_FLOAT32, public=IN_FUNCTIONAL)
def kl_div(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Array:
    """t * (log t - input), where `target` holds t or, with `log_target`, log t."""
    if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in (input, target)):
        raise ShapeError("kl_div: Integral inputs not supported.")
    broadcast_shapes(target.shape, input.shape)
    if log_target:
        loss = jnp.exp(target) * (target - input)
    else:
        used = target != 0
        # The limit of t log t at 0 is 0, where the formula is NaN. The inner choice keeps the derivative finite: a
        # gradient that is discarded by the outer one alone would be 0 times inf.
        loss = jnp.where(used, target * jnp.log(jnp.where(used, target, 1)), 0) - target * input
    if reduction == "batchmean":
        return reduced(loss, "sum") / (input.shape[0] if input.ndim else 1)
    return reduced(loss, reduction, size_average, reduce)


@element_row(
    types=Types(promote=Promote.FLOAT, autocast=Cast.FLOAT32, exact_numbers=True),
    public=Public(function=False, method="", also=("nn.functional",)),
)
def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: Real = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """Negative log-likelihood of counts under Poisson distributions; `full` adds Stirling's term."""
    x, t = wide(input), wide(target)
    broadcast_shapes(target.shape, input.shape)
    loss = jnp.exp(x) - t * x if log_input else x - t * jnp.log(x + like(eps, x))
    if full:
        # PyTorch applies Stirling's formula above 1 only; it is far off below.
        large = t > 1
        # The logarithm of a discarded t must not make the gradient NaN.
        safe = jnp.where(large, t, 1)
        loss = loss + jnp.where(large, safe * jnp.log(safe) - safe + 0.5 * jnp.log(2 * math.pi * safe), 0)
    return reduced(loss.astype(input.dtype), reduction, size_average, reduce)


def _negative(var: Array) -> Array:
    return var < 0


@element_row(
    types=Types(promote=Promote.COMMON, autocast=Cast.NONE, exact_numbers=True),
    public=IN_FUNCTIONAL,
    check=Check(elements=_negative, text="var has negative entry/entries", error=ValueDomainError),
)
def gaussian_nll_loss(
    input: Array, target: Array, var: Operand, full: bool = False, eps: Real = 1e-6, reduction: str = "mean"
) -> Array:
    """(log var + (input - target)**2 / var) / 2, with var at least `eps`; `full` adds log(2 pi) / 2."""
    if var.ndim and var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var[..., None]
        elif input.ndim != var.ndim or sum(b for a, b in zip(input.shape, var.shape, strict=True) if a != b) != 1:
            raise ValueRangeError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueRangeError(f"{reduction} is not valid")
    low = jax.lax.stop_gradient(jnp.maximum(like(eps, var) - var, 0))  # the bound must not stop the gradient
    var = var + low
    loss = 0.5 * (jnp.log(var) + jnp.square(input - target) / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@element_row(types=Types(promote=Promote.COMMON, autocast=Cast.FLOAT32), public=IN_FUNCTIONAL)
def soft_margin_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """log(1 + exp(-target * input)) for targets 1 and -1."""
    broadcast_shapes(input.shape, target.shape)
    return reduced(jax.nn.softplus(-target * input), reduction, size_average, reduce)
