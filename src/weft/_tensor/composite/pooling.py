"""Pooling functions composed of rows: by p-norms, at random places, and the partial inverse."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from weft._base.determinism import refuse_undetermined
from weft._base.types import Arg, Args
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.tensor import Results, Tensor
from weft.errors import IndexRangeError, ShapeError, ValueRangeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._dims import wrap_dim
from weft.ops._neural import ntuple
from weft.ops._table import IN_FUNCTIONAL

# --- positions of maxima --------------------------------------------------------------------------------------


def _pools_with_indices(n: int) -> None:
    """The functions that `return_indices` selects; they also take that argument, and ignore it."""

    @composite(f"max_pool{n}d_with_indices", public=IN_FUNCTIONAL)
    def max_pool_with_indices(
        input: Tensor,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        dilation: object = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The largest element of each window and its flat position in the plane."""
        del return_indices
        return getattr(op, f"max_pool{n}d_with_indices")(input, kernel_size, stride, padding, dilation, ceil_mode)

    @composite(f"adaptive_max_pool{n}d_with_indices", public=IN_FUNCTIONAL)
    def adaptive_max_pool_with_indices(
        input: Tensor, output_size: object, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The largest element of each of `output_size` windows and its flat position in the plane."""
        del return_indices
        return getattr(op, f"adaptive_max_pool{n}d_with_indices")(input, output_size)


# --- p-norms --------------------------------------------------------------------------------------------------


def _lp_pool(n: int) -> None:
    @composite(f"lp_pool{n}d", public=IN_FUNCTIONAL)
    def lp_pool(
        input: Tensor, norm_type: float, kernel_size: object, stride: object = None, ceil_mode: bool = False
    ) -> Tensor:
        """The p-norm of each window, with p = `norm_type`."""
        if abs(norm_type) == inf:
            sign = 1 if norm_type > 0 else -1
            pooled = getattr(op, f"max_pool{n}d_values")
            return sign * pooled(sign * op.abs(input), kernel_size, stride, 0, 1, ceil_mode)
        mean = getattr(op, f"avg_pool{n}d")(op.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
        total = op.sign(mean) * op.relu(op.abs(mean)) * prod(ntuple(kernel_size, n))
        return op.pow(total, 1.0 / norm_type)


# --- the partial inverse of maximum pooling -------------------------------------------------------------------


def _first(name: str, value: object, n: int) -> Args:
    """The first `n` of several numbers, or `n` times a single number."""
    values = ntuple(value, n)
    if len(values) < n:
        raise IndexRangeError(f"tuple index out of range: {name} has {len(values)} elements, and {n} are needed")
    return values[:n]


def _unpooled_size(sizes: Sequence[int], kernel: Arg, stride: Arg, padding: Arg, requested: Arg) -> tuple[int, ...]:
    """The size before pooling: the requested one, if it is possible, else the smallest."""
    n = len(sizes)
    kernel = ntuple(kernel, n)
    if n > 1 and len(kernel) < n:
        words = "two elements (height, width)" if n == 2 else "three elements (depth, height, width)"
        raise ShapeError(f"There should be exactly {words} in output_size, but got {len(kernel)} elements.")
    if len(kernel) > n:
        raise IndexRangeError(f"tuple index out of range: kernel_size has {len(kernel)} elements for {n} dims")
    steps = _first("stride", kernel if stride is None else stride, n)
    sides = zip(sizes, kernel, steps, _first("padding", padding, n), strict=True)
    usual = tuple((size - 1) * s + k - 2 * p for size, k, s, p in sides)
    if requested is None:
        result = usual
    else:
        result = tuple(requested)[2:] if len(requested) == n + 2 else tuple(requested)
        if len(result) != n:
            raise ValueRangeError(
                f"output_size should be a sequence containing {n} or {n + 2} elements, "
                f"but it has a length of '{len(result)}'"
            )
        for dim, (size, least, step) in enumerate(zip(result, usual, steps, strict=True)):
            if not least - step < size < least + step:
                raise ValueRangeError(
                    f'invalid output_size "{result}" (dim {dim} must be between {least - step} and {least + step})'
                )
    for dim, size in enumerate(result):
        if size < 0:
            raise ValueRangeError(
                "max_unpooling: output_size must contain non-negative spatial dimensions, "
                f"but got output_size[{dim}]={size}"
            )
    return result


def _max_unpool(n: int) -> None:
    @composite(f"max_unpool{n}d", public=IN_FUNCTIONAL, cast=CPU_FLOAT32 if n > 1 else None)
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        output_size: object = None,
    ) -> Tensor:
        """Maxima put back at their positions, with zeros elsewhere; `indices` are those of `max_pool`.

        Several sizes may have the same pooled size; `output_size` selects one. It may include batch and channels.
        """
        refuse_undetermined(f"max_unpooling{max(n, 2)}d_forward_out")
        size = _unpooled_size(tuple(input.shape[-n:]), kernel_size, stride, padding, output_size)
        return op.max_unpool(input, indices, size)


# --- random places --------------------------------------------------------------------------------------------


def _fractional_size(input: Tensor, n: int, size: object, ratio: object) -> tuple[int, ...]:
    op_name = f"fractional_max_pool{n}d"
    if size is not None:
        return _exactntuple(size, n, f"{op_name}: output_size")
    if ratio is None:
        raise ValueRangeError(f"{op_name} requires specifying either an output_size or an output_ratio")
    ratios = _first("output_ratio", ratio, n)
    if n == 2 and len(ntuple(ratio, n)) > n:
        raise ValueRangeError(f"{op_name} requires output_ratio to either be a single Int or tuple of Ints.")
    return tuple(int(input.shape[d - n] * r) for d, r in enumerate(ratios))


def _exactntuple(value: object, n: int, what: str) -> tuple[int, ...]:
    sides = ntuple(value, n)
    if len(sides) != n:
        raise ShapeError(f"{what} must either be a single Int or tuple of {'three ' if n == 3 else ''}Ints")
    return sides


def _fractional_max_pool(n: int) -> None:
    @composite(f"fractional_max_pool{n}d_with_indices", public=IN_FUNCTIONAL)
    def with_indices(
        input: Tensor,
        kernel_size: object,
        output_size: object = None,
        output_ratio: object = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The largest element of each window, and its flat position; the windows are at random places."""
        del return_indices
        wrap_dim(-n - 1, input.ndim)  # the channels
        counts = _fractional_size(input, n, output_size, output_ratio)
        kernel = _exactntuple(kernel_size, n, f"fractional_max_pool{n}d: kernel_size")
        if _random_samples is None:
            batch = 1 if input.ndim == n + 1 else input.shape[0]
            _random_samples = op.rand((batch, input.shape[-n - 1], n), dtype=input.dtype, device=input.device)
        return getattr(op, f"fractional_max_pool{n}d_from")(input, _random_samples, kernel, counts)

    @composite(f"fractional_max_pool{n}d", public=IN_FUNCTIONAL)
    def fractional_max_pool(
        input: Tensor,
        kernel_size: object,
        output_size: object = None,
        output_ratio: object = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Results:
        """The largest element of each of `output_size` windows, or of `output_ratio` times the input's size.

        With `return_indices`, also its flat position in the plane.
        """
        result = with_indices(input, kernel_size, output_size, output_ratio, _random_samples=_random_samples)
        return result if return_indices else result[0]


for _n in (1, 2, 3):
    _pools_with_indices(_n)
    _lp_pool(_n)
    _max_unpool(_n)
    if _n > 1:
        _fractional_max_pool(_n)
