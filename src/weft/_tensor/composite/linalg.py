"""Contractions with PyTorch's kinds of arguments, and defaults that differ between `torch` and `torch.linalg`."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.guards import is_list_or_tuple
from weft._base.types import Arg, Args
from weft._tensor.arguments import Dim, dim_list
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import OutOfRangeError, ShapeError, ValueRangeError
from weft.ops._equation import LETTERS
from weft.ops._table import OTHER_OUT, Public


def _term(subscripts: Sequence[Arg]) -> str:
    """The letters for a list of numbers and ellipses."""
    for x in subscripts:
        if x is not Ellipsis and not 0 <= x < len(LETTERS):
            raise ValueRangeError(
                f"einsum(): subscript in subscript list is not within the valid range [0, {len(LETTERS)})"
            )
    return "".join("..." if x is Ellipsis else LETTERS[x] for x in subscripts)


def _from_lists(args: Sequence[Arg]) -> tuple[str, list[Tensor]]:
    """Equation and operands of `operand, subscripts, operand, subscripts, ... [, output subscripts]`."""
    inputs, output = (args[:-1], args[-1:]) if len(args) % 2 else (args, ())
    equation = ",".join(_term(subscripts) for subscripts in inputs[1::2])
    return equation + "".join("->" + _term(subscripts) for subscripts in output), list(inputs[::2])


def _without_operands() -> ValueRangeError:
    return ValueRangeError(
        "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
        "subscripts list"
    )


def _operands_apart(args: Args) -> Args:
    """`("ij,jk", [a, b])` as `("ij,jk", a, b)`."""
    is_list = len(args) == 2 and isinstance(args[0], str) and is_list_or_tuple(args[1])
    return (args[0], *args[1]) if is_list else args


@composite(rest=_operands_apart)
def einsum(*args: object) -> Tensor:
    """Sum of products by an equation.

    The equation is a text, as in `einsum("ij,jk->ik", a, b)`, or numbers, as in `einsum(a, [0, 1], b, [1, 2], [0, 2])`.
    """
    if len(args) < 2:
        raise _without_operands()
    equation, operands = (args[0], list(args[1:])) if isinstance(args[0], str) else _from_lists(args)
    if not operands:
        raise _without_operands()
    return op.einsum(operands, equation)


def _contracted(a: Tensor, b: Tensor, dims: Arg) -> tuple[list[int], list[int]]:
    """The contracted dims: the last of `a` and the first of `b`, or two lists."""
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise OutOfRangeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise ShapeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    if not is_list_or_tuple(dims) or len(dims) != 2:
        raise ShapeError(
            "tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] containing two lists, "
            f"but got dims={dims}"
        )
    first, second = (dim_list(d, "dims", "tensordot", of) for d, of in zip(dims, (a, b), strict=True))
    if len(first) != len(second):
        raise ShapeError("both dimension lists should have same length")
    return [d % a.ndim for d in first], [d % b.ndim for d in second]


@composite(public=Public(out=OTHER_OUT))
def tensordot(a: Tensor, b: Tensor, dims: object = 2) -> Tensor:
    """Sum of products over the last `dims` dims of `a` and the first of `b`, or over two lists of dims."""
    dims_a, dims_b = _contracted(a, b, dims)
    return op.tensordot(a, b, tuple(dims_a), tuple(dims_b))


@composite()
def chain_matmul(*matrices: Arg) -> Tensor:
    """Product of a chain of matrices in the cheapest order; one matrix gives itself."""
    if not matrices:
        raise ShapeError("chain_matmul(): Expected one or more matrices")
    for matrix in matrices:
        if isinstance(matrix, Tensor) and matrix.ndim != 2:
            raise ShapeError(f"Tensor dimension is {matrix.ndim}, expected 2 instead.")
    return matrices[0] if len(matrices) == 1 else op.multi_dot(matrices)


@composite(public=Public(module="linalg", out=OTHER_OUT))
def cross(input: Tensor, other: Tensor, *, dim: Dim = -1) -> Tensor:
    """Vector products along a dim of size three."""
    return op.cross(input, other, dim)
