"""How PyTorch computes public functions by operators: what `__torch_dispatch__` sees of them.

A function that is an operator of PyTorch's needs no entry, and one without an entry is seen as the operators that it
calls here. An entry has the public function's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft._base.device import CPU, DeviceLike, canonical
from weft._base.dtype import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from weft._base.layout import contiguous_format
from weft._base.types import AnyCallable, Arg
from weft._tensor.overriding import setting
from weft._tensor.tensor import Tensor
from weft.ops._aten import aten

# no cell: filled when the module is imported
DECOMPOSED: dict[str, AnyCallable] = {}
"""The functions below, by the names of public functions as `aten.name_of_function` gives them."""


def decomposes(*names: str) -> Callable[[AnyCallable], AnyCallable]:
    def note(function: AnyCallable) -> AnyCallable:
        DECOMPOSED.update(dict.fromkeys(names, function))
        return function

    return note


# --- products -----------------------------------------------------------------------------------------------------


@decomposes("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None or input.ndim == 1:
        product = aten.mv(weight, input) if input.ndim == 1 else matmul(input, aten.t(weight))
        return product if bias is None else aten.add(product, bias)
    if input.ndim == 2:
        return aten.addmm(bias, input, aten.t(weight))
    rows = reshape(input, -1, input.shape[-1])
    return aten.view(aten.addmm(bias, rows, aten.t(weight)), [*input.shape[:-1], weight.shape[0]])


@decomposes("matmul")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    match input.ndim, other.ndim:
        case 1, 1:
            return aten.dot(input, other)
        case 2, 1:
            return aten.mv(input, other)
        case 1, 2:
            return aten.squeeze(aten.mm(aten.unsqueeze(input, 0), other), 0)
        case 2, 2:
            return aten.mm(input, other)
        case n, 2 if n > 2:
            product = aten.mm(reshape(input, -1, input.shape[-1]), other)
            return aten._unsafe_view(product, [*input.shape[:-1], other.shape[-1]])
        case n, 1 if n > 2:
            return aten._unsafe_view(aten.mv(reshape(input, -1, input.shape[-1]), other), [*input.shape[:-1]])
        case 1, _:
            return aten.squeeze(matmul(aten.unsqueeze(input, 0), other), -2)
        case _:
            return _batched(input, other)


def _batched(input: Tensor, other: Tensor) -> Tensor:
    *lead, n, k = input.shape
    m = other.shape[-1]
    batch = [max(pair) if 0 not in pair else 0 for pair in _aligned(lead, other.shape[:-2])]
    a, b = (aten.expand(x, [*batch, *x.shape[-2:]]) for x in (input, other))
    product = aten.bmm(reshape(a, prod(batch), n, k), reshape(b, prod(batch), k, m))
    return aten._unsafe_view(product, [*batch, n, m])


def _aligned(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    length = max(len(a), len(b))
    return list(zip([1] * (length - len(a)) + [*a], [1] * (length - len(b)) + [*b], strict=True))


def _convolving(n: int, transposed: bool) -> AnyCallable:
    def each(x: Arg) -> list[int]:
        return [x] * n if isinstance(x, int) else list(x)

    def convolve(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Arg = 1, padding: Arg = 0, dilation: Arg = 1,
        groups: int = 1,
    ) -> Tensor:  # fmt: skip
        places = [0] * n
        if padding == "same":
            extents = [d * (k - 1) for d, k in zip(each(dilation), weight.shape[2:], strict=True)]
            if any(extent % 2 for extent in extents):  # one more behind the last element
                input = aten.constant_pad_nd(input, [x for extent in extents[::-1] for x in (0, extent % 2)])
            padding = [extent // 2 for extent in extents]
        padding = 0 if padding == "valid" else padding
        return _whole(n, input, weight, bias, each(stride), each(padding), each(dilation), False, places, groups)

    def convolve_transposed(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Arg = 1, padding: Arg = 0,
        output_padding: Arg = 0, groups: int = 1, dilation: Arg = 1,
    ) -> Tensor:  # fmt: skip
        options = (each(stride), each(padding), each(dilation), True, each(output_padding), groups)
        return _whole(n, input, weight, bias, *options)

    return convolve_transposed if transposed else convolve


def _whole(n: int, input: Tensor, *rest: Arg) -> Tensor:
    """A convolution of a batch, or of one example."""
    if input.ndim == n + 2:
        return aten.convolution(input, *rest)
    return aten.squeeze(aten.convolution(aten.unsqueeze(input, 0), *rest), 0)


for _n in (1, 2, 3):
    DECOMPOSED[f"conv{_n}d"] = _convolving(_n, False)
    DECOMPOSED[f"conv_transpose{_n}d"] = _convolving(_n, True)

# --- views and copies ---------------------------------------------------------------------------------------------


@decomposes("reshape")
def reshape(input: Tensor, *shape: Arg, **named: Arg) -> Tensor:
    sizes = list(named.get("shape", shape))
    sizes = [*sizes[0]] if sizes and not isinstance(sizes[0], int) else sizes
    if sizes.count(-1) == 1 and (rest := prod(sizes) * -1):
        sizes[sizes.index(-1)] = input.numel() // rest
    if input.is_contiguous() or _is_viewable(input, sizes):
        return aten.view(input, sizes)
    return aten._unsafe_view(aten.clone(input, memory_format=contiguous_format), sizes)


def _is_viewable(input: Tensor, sizes: Sequence[int]) -> bool:
    """Whether the elements lie so that a view can show them."""
    try:
        with setting(dispatchers=(), by_operators=False):
            input.view(sizes)
    except RuntimeError:
        return False
    return True


@decomposes("flatten")
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    if input.ndim == 0:
        return reshape(input, 1)
    start, end = start_dim % input.ndim, end_dim % input.ndim
    if start == end:
        return input
    return reshape(input, *input.shape[:start], prod(input.shape[start : end + 1]), *input.shape[end + 1 :])


@decomposes("contiguous")
def contiguous(input: Tensor, memory_format: Arg = contiguous_format) -> Tensor:
    if input.is_contiguous(memory_format=memory_format):
        return input
    return aten.clone(input, memory_format=memory_format)


@decomposes("T")
def transposed(input: Tensor) -> Tensor:
    return aten.permute(input, list(range(input.ndim))[::-1])


@decomposes("expand_as")
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    return aten.expand(input, [*other.shape])


@decomposes("view_as")
def view_as(input: Tensor, other: Tensor) -> Tensor:
    return aten.view(input, [*other.shape])


@decomposes("chunk")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> Sequence[Tensor]:
    return aten.split(input, max(1, -(-input.shape[dim] // chunks)), dim)


@decomposes("narrow")
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    start = start % input.shape[dim] if start < 0 else start
    return aten.slice(input, dim, start, start + length)


@decomposes("to")
def to(input: Tensor, *args: Arg, **options: Arg) -> Tensor:
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    elif args and isinstance(args[0], DType):
        args = (None, *args)
    return moved(input, *args, **options)


def moved(
    input: Tensor, device: DeviceLike | None = None, dtype: DType | None = None, non_blocking: bool = False,
    copy: bool = False, memory_format: Arg = None,
) -> Tensor:  # fmt: skip
    target = None if device is None else canonical(device)
    wanted = {"dtype": dtype, "device": target}
    changed = {name: x for name, x in wanted.items() if x is not None and x != getattr(input, name)}
    return aten._to_copy(input, **changed) if changed or copy else input


@decomposes("to_dtype")
def to_dtype(input: Tensor, dtype: DType) -> Tensor:
    return aten._to_copy(input, dtype=dtype)


@decomposes("type_as")
def type_as(input: Tensor, other: Tensor) -> Tensor:
    return moved(input, other.device, other.dtype)


def _casting(dtype: DType) -> AnyCallable:
    def cast(input: Tensor, memory_format: Arg = None) -> Tensor:
        return moved(input, None, dtype)

    return cast


DECOMPOSED |= {
    name: _casting(dtype)
    for name, dtype in {
        "bool": bool_, "byte": uint8, "char": int8, "short": int16, "int": int32, "long": int64, "half": float16,
        "bfloat16": bfloat16, "float": float32, "double": float64,
    }.items()
}  # fmt: skip


@decomposes("cpu")
def cpu(input: Tensor, memory_format: Arg = None) -> Tensor:
    return moved(input, CPU)


@decomposes("slice_dim")
def slice_dim(input: Tensor, dim: int, start: int, length: int, step: int = 1) -> Tensor:
    return aten.slice(input, dim, start, start + length * step, step)


@decomposes("item")
def item(input: Tensor) -> Arg:
    return aten._local_scalar_dense(input)


@decomposes("is_nonzero", "__bool__")
def is_nonzero(input: Tensor) -> bool:
    return bool(aten._local_scalar_dense(input))


# --- arithmetic ---------------------------------------------------------------------------------------------------


def _varying(operator: Arg) -> AnyCallable:
    def vary(
        input: Tensor, dim: Arg = None, unbiased: Arg = None, keepdim: bool = False, *, correction: Arg = None
    ) -> Arg:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = correction if unbiased is None else int(unbiased)
        correction = 1 if correction is None and dim is not None else correction
        dims = [dim] if isinstance(dim, int) else dim
        return operator.correction(input, dims, correction=correction, keepdim=keepdim)

    return vary


DECOMPOSED |= {name: _varying(getattr(aten, name)) for name in ("var", "std", "var_mean", "std_mean")}


@decomposes("__rtruediv__")
def reversed_division(input: Tensor, other: Arg) -> Tensor:
    return aten.mul(aten.reciprocal(input), other)


@decomposes("outer", "ger")
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    return aten.mul(aten.view(input, [input.shape[0], 1]), vec2)


@decomposes("norm")
def norm(input: Tensor, p: Arg = "fro", dim: Arg = None, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    order = 2 if p in (None, "fro") else p
    if not isinstance(order, int | float):
        return aten.norm(input, order, dim, keepdim)
    return aten.linalg_vector_norm(input, order, dim, keepdim, dtype=dtype)
