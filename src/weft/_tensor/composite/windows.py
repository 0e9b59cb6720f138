"""The windows of `signal.windows`; `sym` says whether a window is symmetric, or a period of what is repeated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from weft._base.dtype import DType, float32, float64
from weft._base.guards import ITERABLE
from weft._base.layout import strided
from weft._base.state import default_dtype
from weft._base.types import Arg, Kwargs
from weft._tensor.codegen import op
from weft._tensor.composite.create import create
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError
from weft.ops._table import Public

_WINDOWS = "signal.windows"


def _checked(name: str, M: int, dtype: DType | None, options: Kwargs) -> DType:
    """The type of the window; `ValueError` for a type or layout that it cannot have, and for a negative length."""
    settled = dtype or default_dtype()
    if M < 0:
        raise ValueRangeError(f"{name} requires non-negative window length, got M={M}")
    if options.get("layout", strided) is not strided:
        raise ValueRangeError(f"{name} is implemented for strided tensors only, got: {options['layout']}")
    if settled not in (float32, float64):
        raise ValueRangeError(f"{name} expects float32 or float64 dtypes, got: {settled}")
    return settled


def _span(M: int, sym: bool) -> int:
    """The distance of the first point from the last one of a symmetric window, or from the first of the next period."""
    return max(M - 1, 0) if sym or M <= 1 else M


def _curve(M: int, curve: Callable[[Tensor], Tensor], dtype: DType, options: Kwargs) -> Tensor:
    """A function of 0 to M - 1, computed in float64."""
    requires_grad = options.pop("requires_grad", False)
    places = create("arange", (M,), 0.0, 1.0, dtype=float64, options=options)
    return curve(places).to(dtype).requires_grad_(requires_grad)


@composite(public=Public(module=_WINDOWS))
def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    **options: object,
) -> Tensor:
    """`exp(-abs(n - center) / tau)`; the center, by default the middle, may only be given if not `sym`."""
    settled = _checked("exponential", M, dtype, options)
    if tau <= 0:
        raise ValueRangeError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueRangeError("Center must be None for symmetric windows")
    middle = _span(M, sym) / 2 if center is None else center
    return _curve(M, lambda n: op.exp(-op.abs(n - middle) / tau), settled, options)


@composite(public=Public(module=_WINDOWS))
def cosine(M: int, *, sym: bool = True, dtype: DType | None = None, **options: object) -> Tensor:
    """Half a period of the sine; no point is 0."""
    settled = _checked("cosine", M, dtype, options)
    return _curve(M, lambda n: op.sin((n + 0.5) * (math.pi / (_span(M, sym) + 1))), settled, options)


@composite(public=Public(module=_WINDOWS))
def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: DType | None = None, **options: object) -> Tensor:
    """`exp(-(n - middle)**2 / (2 std**2))`."""
    settled = _checked("gaussian", M, dtype, options)
    if std <= 0:
        raise ValueRangeError(f"Standard deviation must be positive, got: {std} instead.")
    return _curve(M, lambda n: op.exp(-op.square((n - _span(M, sym) / 2) / std) / 2), settled, options)


@composite(public=Public(module=_WINDOWS))
def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType | None = None, **options: object) -> Tensor:
    """Kaiser's window with shape parameter `beta`."""
    settled = _checked("kaiser", M, dtype, options)
    if beta < 0:
        raise ValueRangeError(f"beta must be non-negative, got: {beta} instead.")
    return create("kaiser_window", (M,), not sym, float(beta), dtype=settled, options=options)


@composite(public=Public(module=_WINDOWS))
def bartlett(M: int, *, sym: bool = True, dtype: DType | None = None, **options: object) -> Tensor:
    """A rise and a fall in straight lines."""
    return create("bartlett_window", (M,), not sym, dtype=_checked("bartlett", M, dtype, options), options=options)


def _cosines(name: str, M: int, a: Iterable[float], sym: bool, dtype: DType | None, options: Kwargs) -> Tensor:
    """`a[0] - a[1] cos(x) + a[2] cos(2 x) - …` with x from 0 to 2 pi."""
    settled = _checked(name, M, dtype, options)
    signed = tuple(float(-weight if k % 2 else weight) for k, weight in enumerate(a))
    if not signed:
        raise ValueRangeError("Coefficients cannot be empty")
    return create("cosine_window", (M,), signed, not sym, dtype=settled, options=options)


@composite(public=Public(module=_WINDOWS))
def general_cosine(M: int, *, a: Arg, sym: bool = True, dtype: DType | None = None, **options: object) -> Tensor:
    """A sum of cosines `a[k] cos(k x)` of alternating signs, with x from 0 to 2 pi."""
    if not isinstance(a, ITERABLE):
        raise ArgumentError("Coefficients must be a list/tuple")
    return _cosines("general_cosine", M, a, sym, dtype, options)


@composite(public=Public(module=_WINDOWS))
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None, **options: object
) -> Tensor:
    """`alpha - (1 - alpha) cos(x)`, with x from 0 to 2 pi."""
    return _cosines("general_cosine", M, (alpha, 1 - alpha), sym, dtype, options)


def _named(name: str, doc: str, *a: float, called: str = "general_cosine") -> None:
    """A sum of cosines with fixed weights."""

    @composite(name, doc=doc, public=Public(module=_WINDOWS))
    def window(M: int, *, sym: bool = True, dtype: DType | None = None, **options: object) -> Tensor:
        return _cosines(called, M, a, sym, dtype, options)


_named("hamming", "Hamming's window `0.54 - 0.46 cos(x)`.", 0.54, 0.46)
_named("hann", "Hann's window `0.5 - 0.5 cos(x)`.", 0.5, 0.5)
_named("blackman", "Blackman's window of three cosines.", 0.42, 0.5, 0.08, called="blackman")
_named("nuttall", "Nuttall's window of four cosines.", 0.3635819, 0.4891775, 0.1365995, 0.0106411)
