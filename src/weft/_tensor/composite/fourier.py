"""Fourier transforms with PyTorch's arguments: types, sizes and dims are settled here; three rows compute them."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.dtype import DType, float32, float64
from weft._base.numpy_guards import INTEGERS
from weft._base.state import default_dtype
from weft._base.types import Arg, Kwargs
from weft._tensor.arguments import AnyDims, Dim
from weft._tensor.codegen import op
from weft._tensor.composite.create import arange, type_for
from weft._tensor.functions import composite
from weft._tensor.output import replace
from weft._tensor.tensor import Tensor
from weft.errors import DimError, DTypeError, OutOfRangeError, ShapeError
from weft.ops._dims import wrap_dim
from weft.ops._table import Public
from weft.ops._type_names import scalar_name

_FFT = "fft"
_NORMS = (None, "backward", "ortho", "forward")

Sizes = int | Sequence[int] | None


def _floating(input: Tensor, complex: bool) -> Tensor:
    """The tensor in a type that can be transformed: float32, float64 or, if asked for, their complex types."""
    dtype = input.dtype if input.dtype.is_differentiable else default_dtype()
    if dtype.to_real() not in (float32, float64):
        raise DTypeError(f"Unsupported dtype {scalar_name(dtype)}")
    return input.to(dtype.to_complex() if complex else dtype)


def _norm(norm: str | None) -> str:
    if norm not in _NORMS:
        raise OutOfRangeError(f'Invalid normalization mode: "{norm}"')
    return norm or "backward"


def _wrapped(dim: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Dims counted from the front; a tensor without dims has none."""
    if dim and not ndim:
        raise DimError(f"Dimension specified as {dim[0]} but tensor has no dimensions")
    return tuple(wrap_dim(d, ndim) for d in dim)


def _along(input: Tensor, dim: Arg, sizes: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims, counted from the front, and sizes; -1 for one that is not given."""
    ndim = input.ndim
    dims = None if dim is None else _wrapped(dim, ndim)
    if sizes is not None and dims is not None and len(sizes) != len(dims):
        raise ShapeError("When given, dim and shape arguments must have the same length")
    if sizes is not None and len(sizes) > ndim:
        raise ShapeError(f"Got shape with {len(sizes)} values but input tensor only has {ndim} dimensions.")
    if dims is None:
        dims = tuple(range(0 if sizes is None else ndim - len(sizes), ndim))
    if len(set(dims)) != len(dims):
        raise ShapeError("FFT dims must be unique")
    sizes = (-1,) * len(dims) if sizes is None else tuple(sizes)
    for size in sizes:
        if size < -1 or size == 0:
            raise ShapeError(f"Invalid number of data points ({size}) specified")
    return dims, sizes


_KINDS = {"fft_c2c": "a complex", "fft_r2c": "a complex", "fft_c2r": "a floating point"}


class _Transform:
    """One of the transforms between real and complex numbers, forward or backward."""

    def __init__(self, name: str, row: str, forward: bool) -> None:
        self.name, self.row, self.forward = name, row, forward

    def out_text(self, name: str) -> str:
        return f"{name} expects {_KINDS[self.row]} output tensor, but got {{1}}"

    def of(
        self, input: Tensor, dims: tuple[int, ...], sizes: tuple[int, ...], norm: str | None, several: bool
    ) -> Tensor:
        """The transform along `dims`. Real numbers become complex before they are transformed along several dims."""
        mode, onesided = _norm(norm), self.row == "fft_r2c"
        from_real = onesided or (self.row == "fft_c2c" and not several and not input.is_complex())
        x = _floating(input, not from_real)
        if not dims:
            return x
        if from_real:
            return op.fft_r2c(x, dims, sizes, mode, self.forward, onesided)
        return getattr(op, self.row)(x, dims, sizes, mode, self.forward)

    def refuse_complex(self, input: Tensor, name: str, several: bool) -> None:
        if self.row != "fft_r2c" or not input.is_complex():
            return
        kind = scalar_name(input.dtype)
        if several and not self.forward:
            raise DTypeError(f"Only supports floating-point dtypes, but found: {kind}")
        raise DTypeError(f"{name} expects a real{'-valued' * several} input tensor, but got {kind}")


def _one_dim(transform: _Transform, doc: str) -> None:
    name = transform.name

    @composite(name, doc=f"{doc} along `dim`.", public=Public(module=_FFT, out=transform.out_text(name)))
    def transform_along(input: Tensor, n: int | None = None, dim: Dim = -1, norm: str | None = None) -> Tensor:
        transform.refuse_complex(input, name, False)
        along = _along(input, (dim,), None if n is None else (n,))
        if n is not None and n < 1:
            raise ShapeError(f"Invalid number of data points ({n}) specified")
        return transform.of(input, *along, norm, False)


def _of_dims(transform: _Transform, name: str, input: Tensor, s: Sizes, dim: Arg, norm: str | None) -> Tensor:
    transform.refuse_complex(input, name, True)
    pair: tuple[Arg, Arg] = dim, s
    dims, sizes = _along(input, *((x,) if isinstance(x, INTEGERS) else x for x in pair))
    if not dims and transform.row != "fft_c2c":
        raise ShapeError(f"{name} must transform at least one axis")
    return transform.of(input, dims, sizes, norm, True)


def _several_dims(transform: _Transform, doc: str) -> None:
    name, two = f"{transform.name}n", f"{transform.name}2"

    @composite(
        name,
        doc=f"{doc} along several dims, by default along all.",
        public=Public(module=_FFT, out=transform.out_text(name)),
    )
    def along(input: Tensor, s: Sizes = None, dim: AnyDims = None, norm: str | None = None) -> Tensor:
        return _of_dims(transform, name, input, s, dim, norm)

    @composite(
        two,
        doc=f"{doc} along two dims, by default the last ones.",
        public=Public(module=_FFT, out=transform.out_text(name)),
    )
    def along_two(input: Tensor, s: Sizes = None, dim: AnyDims = (-2, -1), norm: str | None = None) -> Tensor:
        return _of_dims(transform, name, input, s, dim, norm)


for _name, _row, _forward, _doc in (
    ("fft", "fft_c2c", True, "Discrete Fourier transform"),
    ("ifft", "fft_c2c", False, "Inverse discrete Fourier transform"),
    ("rfft", "fft_r2c", True, "The first half of the Fourier transform of real numbers"),
    ("irfft", "fft_c2r", False, "Inverse of `rfft`: real numbers from the first half of their transform,"),
    ("hfft", "fft_c2r", True, "Real Fourier transform of the first half of a Hermitian signal"),
    ("ihfft", "fft_r2c", False, "Inverse of `hfft`: the first half of a Hermitian signal from its transform"),
):
    _transform = _Transform(_name, _row, _forward)
    _one_dim(_transform, _doc)
    _several_dims(_transform, _doc)


# ---- frequencies


def _frequencies(
    name: str,
    n: int,
    d: float,
    bounds: tuple[int, int],
    *,
    out: Tensor | None,
    dtype: DType | None,
    requires_grad: bool,
    options: Kwargs,
) -> Tensor:
    """The whole numbers within bounds, in the order in which those below 0 come last, divided by the length `n * d`."""
    settled = type_for(out, dtype, default_dtype())
    if not settled.is_differentiable:
        raise DTypeError(f"{name} requires a floating point or complex dtype")
    if n < 0:
        raise ShapeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    whole = arange(*bounds, dtype=settled, **options)
    ordered = op.roll(whole, bounds[0], 0) if n else whole
    result = ordered * (1 / (n * d) if n * d else float("inf"))
    return result.requires_grad_(requires_grad) if out is None else replace(out, result)


@composite(public=Public(module=_FFT))
def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    requires_grad: bool = False,
    **options: object,
) -> Tensor:
    """Frequencies of the elements of a transform of size `n`, for a signal sampled every `d`."""
    bounds = -(n // 2), (n + 1) // 2
    return _frequencies("fftfreq", n, d, bounds, out=out, dtype=dtype, requires_grad=requires_grad, options=options)


@composite(public=Public(module=_FFT))
def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    requires_grad: bool = False,
    **options: object,
) -> Tensor:
    """Frequencies of the elements of `rfft` of `n` numbers, for a signal sampled every `d`."""
    bounds = 0, n // 2 + 1
    return _frequencies("rfftfreq", n, d, bounds, out=out, dtype=dtype, requires_grad=requires_grad, options=options)


def _shifted(input: Tensor, dim: Arg, back: bool) -> Tensor:
    dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, INTEGERS) else dim
    over = tuple(wrap_dim(d, input.ndim) for d in dims)
    for d in over:
        input = op.roll(input, (input.shape[d] + back) // 2, d)
    return input


@composite(public=Public(module=_FFT))
def fftshift(input: Tensor, dim: AnyDims = None) -> Tensor:
    """Negative frequencies before the others: the order of `fftfreq`, sorted."""
    return _shifted(input, dim, False)


@composite(public=Public(module=_FFT))
def ifftshift(input: Tensor, dim: AnyDims = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(input, dim, True)
