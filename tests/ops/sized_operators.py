"""Operators whose compiled code depends on sizes, each with NumPy's answer.

XLA computes a small array in another way than a large one: by single instructions or vectors, whole or in tiles, by its
own code or a library's, on one thread or several. What is right at one size can be wrong at another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import weft
from weft.nn import functional

Array = np.ndarray
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BFLOAT16)


@dataclass(frozen=True)
class Operator:
    """A function of a tensor and a dim, and NumPy's of an array of float64 (or of the array's own type) and a dim.

    eps      by how many units of the last place a result may differ, in relation to that for the magnitudes; 0 for none
    finite   whether it is asked for arrays without NaN and infinities alone
    bits     whether signs of zeros count
    """

    name: str
    function: Callable[[Any, int], Any]
    expected: Callable[[Array, int], Any]
    eps: float = 0
    finite: bool = False
    bits: bool = False

    def __repr__(self) -> str:
        return self.name


# --- contents -------------------------------------------------------------------------------------------------


def contents(count: int, dtype: np.dtype[Any]) -> Iterator[tuple[str, Array]]:
    """Arrays of one dim to try, with their names: the first two are finite."""
    rng = np.random.default_rng(count)
    plain = rng.standard_normal(count).round(1).astype(dtype)  # many are equal
    yield "plain", plain
    yield "zeros", np.where(rng.random(count) < 0.5, 0.0, -0.0).astype(dtype)
    for name, numbers in (("infinities", [np.inf, -np.inf]), ("least", [-np.inf]), ("most", [np.inf])):
        yield name, _with(plain, rng.integers(0, count, 1 + count // 50), numbers)
    for name, at in (("first", 0), ("inside", count // 3), ("last", count - 1)):
        yield f"NaN {name}", _with(plain, np.array([at]), [np.nan])
    yield "NaN among infinities", _with(plain, rng.integers(0, count, 1 + count // 50), [np.inf, np.nan, -np.inf])
    yield "all NaN", np.full(count, np.nan, dtype)


def _with(plain: Array, places: Array, numbers: Sequence[float]) -> Array:
    result = plain.copy()
    result[places] = np.resize(np.array(numbers, plain.dtype), len(places))
    return result


# --- NumPy's answers --------------------------------------------------------------------------------------------


def order(x: Array, dim: int, descending: bool = False) -> Array:
    """Positions in stable order; NaN is the largest number."""
    nan = np.isnan(x)
    key = np.where(nan, 0, -x if descending else x)
    return np.lexsort((key, nan != descending), axis=dim)


def sorted_pair(x: Array, dim: int, descending: bool = False) -> tuple[Array, Array]:
    places = order(x, dim, descending)
    return np.take_along_axis(x, places, dim), places


def kth(x: Array, dim: int, k: int) -> Array:
    return np.take(sorted_pair(x, dim)[0], k, dim)


def middle(x: Array, dim: int) -> Array:
    """The lower median; NaN where there is one."""
    return np.where(np.isnan(x).any(dim), np.nan, kth(x, dim, (x.shape[dim] - 1) // 2))


def nan_middle(x: Array, dim: int) -> Array:
    count = np.maximum((~np.isnan(x)).sum(dim, keepdims=True) - 1, 0) // 2
    return np.take_along_axis(sorted_pair(x, dim)[0], count, dim).squeeze(dim)


def log_sum(x: Array, dim: int) -> Array:
    top = np.max(x, dim, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0)
    return (np.log(np.exp(x - shift).sum(dim, keepdims=True)) + shift).squeeze(dim)


def normalised(x: Array, dim: int) -> Array:
    power = np.exp(x - np.max(x, dim, keepdims=True))
    return power / power.sum(dim, keepdims=True)


def log_normalised(x: Array, dim: int) -> Array:
    below = x - np.max(x, dim, keepdims=True)
    return below - np.log(np.exp(below).sum(dim, keepdims=True))


def windows(x: Array, dim: int, width: int, step: int) -> Array:
    """(…, width): the windows along a dim, each `step` after the one before."""
    starts = range(0, x.shape[dim] - width + 1, step)
    return np.take(sliding_window_view(x, width, dim), starts, dim)


def combined(ufunc: np.ufunc, x: Array, dim: int) -> Array:
    """The elements along a dim gathered in seven by a ufunc: as scatters do with `slots`."""
    moved = np.moveaxis(x, dim, 0)
    result = np.ones((7, *moved.shape[1:]), x.dtype)
    ufunc.at(result, slots(len(moved)), moved)
    return np.moveaxis(result, 0, dim)


def slots(count: int) -> Array:
    return np.arange(count) * 5 % 7


# --- functions of tensors ---------------------------------------------------------------------------------------


def near_one(x: Any) -> Any:
    """Numbers whose product is no denormal number and not infinite, whatever their count."""
    return 1 + (x > 0.5) / 1024 - (x < -0.5) / 1024 + 0 * x


def chosen(pair: Any, x: Any, dim: int) -> tuple[Any, Any]:
    """Values, and the elements at the indices: where several are equal, any of these may be named."""
    return pair.values, x.take_along_dim(pair.indices.unsqueeze(dim), dim).squeeze(dim)


def running(pair: Any, x: Any, dim: int) -> tuple[Any, Any]:
    return pair.values, x.take_along_dim(pair.indices, dim)


def twice(expected: Callable[..., Any]) -> Callable[..., Any]:
    def pair(x: Array, dim: int) -> Any:
        result = expected(x, dim)
        return result, result

    return pair


def scattered(reduce: str) -> Callable[..., Any]:
    def function(x: Any, dim: int) -> Any:
        sizes = [7 if d == dim else n for d, n in enumerate(x.shape)]
        shape = [x.shape[dim] if d == dim else 1 for d in range(x.ndim)]
        index = weft.tensor(slots(x.shape[dim])).reshape(shape).expand(x.shape)
        return weft.ones(sizes, dtype=x.dtype).scatter_reduce(dim, index, x, reduce)

    return function


def indexed(x: Any, dim: int, reduce: str) -> Any:
    sizes = [7 if d == dim else n for d, n in enumerate(x.shape)]
    return weft.ones(sizes, dtype=x.dtype).index_reduce(dim, weft.tensor(slots(x.shape[dim])), x, reduce)


def pooled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pooling along one dim, which becomes the last of three."""

    def run(x: Any, dim: int) -> Any:
        moved = x.movedim(dim, -1)
        result = function(moved.reshape(1, -1, moved.shape[-1]))
        return result.reshape(*moved.shape[:-1], -1).movedim(-1, dim)

    return run


def image_pooled(x: Any, dim: int) -> Any:
    del dim
    side = int(x.numel() ** 0.5)
    return functional.max_pool2d(x.reshape(-1)[: side * side].reshape(1, 1, side, side), 3, 2)


def image_windows(x: Array, dim: int) -> Array:
    del dim
    side = int(x.size**0.5)
    image = x.reshape(-1)[: side * side].reshape(1, 1, side, side)
    return sliding_window_view(image, (3, 3), (2, 3))[:, :, ::2, ::2].max((-1, -2))


REDUCTIONS = [
    Operator("sum", lambda x, d: x.sum(d), np.sum, 4),
    Operator("nansum", lambda x, d: x.nansum(d), np.nansum, 4),
    Operator("mean", lambda x, d: x.mean(d), np.mean, 4),
    Operator("nanmean", lambda x, d: x.nanmean(d), lambda x, d: np.nansum(x, d) / (~np.isnan(x)).sum(d), 4),
    Operator("prod", lambda x, d: near_one(x).prod(d), lambda x, d: np.prod(near_one(x), d), 1024),
    Operator("any", lambda x, d: x.any(d), np.any),
    Operator("all", lambda x, d: x.all(d), np.all),
    Operator("count_nonzero", lambda x, d: x.count_nonzero(d), np.count_nonzero),
    Operator("amax", lambda x, d: x.amax(d), np.max),
    Operator("amin", lambda x, d: x.amin(d), np.min),
    Operator("max of all", lambda x, d: x.max(), lambda x, d: np.max(x)),
    Operator("min of all", lambda x, d: x.min(), lambda x, d: np.min(x)),
    Operator("aminmax", lambda x, d: tuple(x.aminmax(dim=d)), lambda x, d: (np.min(x, d), np.max(x, d))),
    Operator("max", lambda x, d: tuple(x.max(d)), lambda x, d: (np.max(x, d), np.argmax(x, d))),
    Operator("min", lambda x, d: tuple(x.min(d)), lambda x, d: (np.min(x, d), np.argmin(x, d))),
    Operator("argmax", lambda x, d: x.argmax(d), np.argmax),
    Operator("argmin", lambda x, d: x.argmin(d), np.argmin),
    Operator("largest magnitude", lambda x, d: x.abs().amax(d), lambda x, d: np.max(np.abs(x), d)),
    Operator("logsumexp", lambda x, d: x.logsumexp(d), log_sum, 16),
    Operator("softmax", lambda x, d: x.softmax(d), normalised, 32),
    Operator("log_softmax", lambda x, d: x.log_softmax(d), log_normalised, 32),
    Operator("var", lambda x, d: x.var(d, correction=0), np.var, 64),
    *[
        Operator(
            f"norm {p}",
            lambda x, d, p=p: weft.linalg.vector_norm(x, p, d),
            lambda x, d, p=p: np.linalg.norm(np.moveaxis(x, d, 0), p, axis=0),
            16 if np.isfinite(p) else 0,
        )
        for p in (0, 1, 2, 3, np.inf, -np.inf)
    ],
    Operator("relu, summed", lambda x, d: functional.relu(x).sum(d), lambda x, d: np.maximum(x, 0).sum(d), 4),
    Operator(
        "hinge loss",
        lambda x, d: functional.hinge_embedding_loss(x, -weft.ones_like(x)),
        lambda x, d: np.maximum(1 - x, 0).mean(),
        16,
    ),
]
ELEMENTS = [
    Operator("maximum", lambda x, d: weft.maximum(x, x.flip(d)), lambda x, d: np.maximum(x, np.flip(x, d))),
    Operator("minimum", lambda x, d: weft.minimum(x, x.flip(d)), lambda x, d: np.minimum(x, np.flip(x, d))),
    Operator("fmax", lambda x, d: weft.fmax(x, x.flip(d)), lambda x, d: np.fmax(x, np.flip(x, d))),
    Operator("fmin", lambda x, d: weft.fmin(x, x.flip(d)), lambda x, d: np.fmin(x, np.flip(x, d))),
    Operator("clamp", lambda x, d: x.clamp(-0.5, 0.5), lambda x, d: np.clip(x, -0.5, 0.5)),
    Operator("relu", lambda x, d: functional.relu(x), lambda x, d: np.maximum(x, 0)),
    Operator("sign", lambda x, d: x.sign(), lambda x, d: np.where(np.isnan(x), 0, np.sign(x))),
    Operator("isfinite", lambda x, d: x.isfinite(), lambda x, d: np.isfinite(x)),
    Operator(
        "nan_to_num", lambda x, d: x.nan_to_num(1, 2, 3), lambda x, d: np.nan_to_num(x, nan=1, posinf=2, neginf=3)
    ),
    Operator("where", lambda x, d: weft.where(x > 0, x, -x), lambda x, d: np.where(x > 0, x, -x), bits=True),
]
SCANS = [
    Operator("cumsum", lambda x, d: x.cumsum(d), np.cumsum, 4),
    Operator("cumprod", lambda x, d: near_one(x).cumprod(d), lambda x, d: np.cumprod(near_one(x), d), 1024),
    Operator("cummax", lambda x, d: running(x.cummax(d), x, d), twice(lambda x, d: np.maximum.accumulate(x, d))),
    Operator("cummin", lambda x, d: running(x.cummin(d), x, d), twice(lambda x, d: np.minimum.accumulate(x, d))),
    Operator("logcumsumexp", lambda x, d: x.logcumsumexp(d), lambda x, d: np.logaddexp.accumulate(x, d), 64),
    Operator("diff", lambda x, d: x.diff(dim=d), lambda x, d: np.diff(x, axis=d)),
]
SORTS = [
    Operator("sort", lambda x, d: tuple(x.sort(d, stable=True)), sorted_pair, bits=True),
    Operator(
        "sort downwards",
        lambda x, d: tuple(x.sort(dim=d, descending=True, stable=True)),
        lambda x, d: sorted_pair(x, d, descending=True),
        bits=True,
    ),
    Operator("argsort", lambda x, d: x.argsort(d, stable=True), order),
    Operator(
        "topk",
        lambda x, d: running(x.topk(5, d), x, d),
        twice(lambda x, d: np.take(sorted_pair(x, d, descending=True)[0], range(5), d)),
    ),
    Operator(
        "least five",
        lambda x, d: running(x.topk(5, d, largest=False), x, d),
        twice(lambda x, d: np.take(sorted_pair(x, d)[0], range(5), d)),
    ),
    Operator("kthvalue", lambda x, d: chosen(x.kthvalue(9, d), x, d), twice(lambda x, d: kth(x, d, 8))),
    Operator("median", lambda x, d: chosen(x.median(d), x, d), twice(middle)),
    Operator("nanmedian", lambda x, d: chosen(x.nanmedian(d), x, d), twice(nan_middle)),
    Operator("median of all", lambda x, d: x.median(), lambda x, d: middle(x.reshape(-1), 0)),
    Operator("unique", lambda x, d: x.unique(), lambda x, d: np.unique(x, equal_nan=False)),
    Operator("nonzero", lambda x, d: x.nonzero(), lambda x, d: np.argwhere(x)),
    Operator("masked_select", lambda x, d: x[x > 0.5], lambda x, d: x[x > 0.5]),
    Operator(
        "searchsorted",
        lambda x, d: weft.searchsorted(weft.arange(-3, 3, 0.25, dtype=x.dtype), x),
        lambda x, d: np.searchsorted(np.arange(-3, 3, 0.25), x),
    ),
    Operator("histc", lambda x, d: x.histc(8, -2, 2), lambda x, d: np.histogram(x, 8, (-2, 2))[0], finite=True),
]
SCATTERS = [
    Operator("scatter amax", scattered("amax"), lambda x, d: combined(np.maximum, x, d)),
    Operator("scatter amin", scattered("amin"), lambda x, d: combined(np.minimum, x, d)),
    Operator("scatter sum", scattered("sum"), lambda x, d: combined(np.add, x, d), 16),
    Operator("index_reduce amax", lambda x, d: indexed(x, d, "amax"), lambda x, d: combined(np.maximum, x, d)),
    Operator("index_reduce amin", lambda x, d: indexed(x, d, "amin"), lambda x, d: combined(np.minimum, x, d)),
    Operator(
        "index_copy",
        lambda x, d: weft.zeros_like(x).index_copy(d, weft.arange(x.shape[d]).flip(0), x),
        lambda x, d: np.flip(x, d),
        bits=True,
    ),
    Operator(
        "index_select",
        lambda x, d: x.index_select(d, weft.arange(0, x.shape[d], 3)),
        lambda x, d: np.take(x, range(0, x.shape[d], 3), d),
        bits=True,
    ),
]
WINDOWS = [
    Operator("max_pool1d", pooled(lambda x: functional.max_pool1d(x, 3, 2)), lambda x, d: windows(x, d, 3, 2).max(-1)),
    Operator(
        "long max_pool1d",
        pooled(lambda x: functional.max_pool1d(x, 31, 1)),
        lambda x, d: windows(x, d, 31, 1).max(-1),
    ),
    Operator(
        "adaptive_max_pool1d",
        pooled(lambda x: functional.adaptive_max_pool1d(x, 1)),
        lambda x, d: x.max(d, keepdims=True),
    ),
    Operator(
        "avg_pool1d", pooled(lambda x: functional.avg_pool1d(x, 3, 2)), lambda x, d: windows(x, d, 3, 2).mean(-1), 16
    ),
    Operator("max_pool2d", image_pooled, image_windows),
    Operator("unfold", lambda x, d: x.unfold(d, 7, 5), lambda x, d: windows(x, d, 7, 5), bits=True),
]
CASTS = [
    *[
        Operator(
            f"to {target}",
            lambda x, d, target=target: x.to(getattr(weft, str(target))),
            lambda x, d, target=target: x.astype(target),
            bits=True,
        )
        for target in (*HALVES, np.dtype(np.float32), np.dtype(np.float64), np.dtype(bool))
    ],
    *[
        Operator(
            f"to {target}",
            lambda x, d, target=target: (16 * x).to(getattr(weft, target)),
            lambda x, d, target=target: np.trunc(16 * x).astype(target),
            finite=True,
        )
        for target in ("int8", "int16", "int32", "int64")
    ],
]

ALL = [*REDUCTIONS, *ELEMENTS, *SCANS, *SORTS, *SCATTERS, *WINDOWS, *CASTS]
