"""`out=`: results written to an existing tensor."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from weft._base.dtype import DType
from weft._base.guards import is_tuple
from weft._base.state import ambient
from weft._base.types import Arg
from weft._tensor.dim_names import names_of, take_names
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Results, Tensor
from weft._tensor.view import write
from weft._tensor.write_checks import check_cast, check_names, check_overlap
from weft.errors import ArgumentError, DTypeError, GradientError
from weft.ops._type_names import c_name, scalar_name


def write_out(
    out: Arg, result: Arg, text: str = "", sources: Sequence[Arg] = (), separate: Sequence[Arg] = ()
) -> Results:
    """Write a result to the argument `out`. It was computed from `sources`, and from `separate` tensors.

    An `out` of another shape is resized, with a warning unless it is empty. An `out` of another type is refused with
    `text` or, if that is empty, by the rules of in-place operators. `out` must not share elements with `separate`.
    """
    if is_tuple(result):
        for target, part in zip(out, result, strict=True):
            write_out(target, part, text, sources, separate)
        return out
    if not isinstance(out, Tensor):
        raise ArgumentError(f"argument 'out' must be Tensor, not {kind_and_advice(out)}")
    if out.dtype is not result.dtype and text:
        both = (result.dtype, out.dtype)
        raise DTypeError(text.format(*map(scalar_name, both), *map(c_name, both)))
    check_cast(result.dtype, out.dtype)
    check_overlap(out, [x for x in sources if isinstance(x, Tensor)])
    check_overlap(out, [x for x in separate if isinstance(x, Tensor)], wholly=True)
    if out.numel() and out.shape != result.shape:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
            f"match the required output shape {list(result.shape)}.",
            stacklevel=3,
        )
    check_names(out._read().aval.names, names_of(result))
    return replace(out, result)


def replace(out: Tensor, result: Tensor) -> Tensor:
    """Give `out` the elements and the shape of a result; its type stays."""
    if ambient().grad and (result.requires_grad or out.requires_grad):
        raise GradientError(
            "out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        )
    names = result._read().aval.names
    if out.shape == result.shape:
        return take_names(write(out, result._read()), names)
    check_names(out._read().aval.names, names)
    out.data = result if out.dtype is result.dtype else result.to(out.dtype)
    return out


def type_of_out(out: object) -> DType | None:
    """The type of a result that is written to `out`, if no type is requested."""
    return out.dtype if isinstance(out, Tensor) else None
