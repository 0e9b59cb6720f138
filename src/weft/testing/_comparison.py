"""Whether two results, as far as tests care, are the same: `assert_close`."""

from __future__ import annotations

import warnings
from cmath import isfinite, isnan
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft._base.dtype import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
    promote_types,
    uint16,
    uint32,
    uint64,
)
from weft._base.state import using
from weft._base.types import Arg, AttributeValue
from weft._tensor.composed import encoding_of
from weft._tensor.convert import as_tensor
from weft._tensor.kind_names import advice
from weft._tensor.sparse.tensor import SparseTensor
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, MismatchError, ValueRangeError
from weft.testing._report import scalars_differ, tensors_differ

_TOLERANCES = {
    float16: (1e-3, 1e-5),
    bfloat16: (1.6e-2, 1e-5),
    float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7),
    complex64: (1.3e-6, 1e-5),
    complex128: (1e-7, 1e-7),
}
_FORMER_TOLERANCES = {float16: (1e-3, 1e-3), float32: (1e-4, 1e-5), float64: (1e-5, 1e-8)}
"""Those of `assert_allclose`."""
_NUMBERS = {int: int64, float: float64, complex: complex128}
_UNSIGNED = (uint16, uint32, uint64)

Message = str | Callable[[str], str] | None


@dataclass(frozen=True)
class Options:
    """What `assert_close` was asked to compare, and how."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool

    def tolerances(self, *dtypes: DType) -> tuple[float, float]:
        """The relative and the absolute tolerance: as given, or the larger one of those for the element types."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        if self.rtol is not None or self.atol is not None:
            absent = "rtol" if self.rtol is None else "atol"
            raise _Failure(
                ValueRangeError, f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {absent}."
            )
        rtols, atols = zip(*[_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes], strict=True)
        return max(rtols), max(atols)


class _Failure(Exception):
    """Two items differ, or cannot be compared: the error that the caller gets, and the way to the items."""

    def __init__(self, kind: type[Exception], text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.path: tuple[Any, ...] = ()

    def as_error(self, message: Message) -> Exception:
        """The error for the caller, with the caller's message instead of the text, if there is one."""
        if isinstance(message, str):
            return self.kind(message)
        item = "".join(f"[{key!r}]" for key in self.path)
        text = f"{self.text}\n\nThe failure occurred for item {item}" if item else self.text
        return self.kind(message(text) if message else text)


def assert_close(
    actual: Arg,
    expected: Arg,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise `AssertionError` unless `actual` and `expected` are close: |actual - expected| <= atol + rtol * |expected|.

    Both are tensors or what tensors are made from, numbers, bools, None, or sequences and mappings of such. Equal
    numbers, infinities too, are close; NaN is only with `equal_nan`. Without tolerances, they follow from the element
    types: (rtol, atol) is (1.3e-6, 1e-5) for float32 and complex64, (1e-7, 1e-7) for float64 and complex128,
    (1e-3, 1e-5) for float16, (1.6e-2, 1e-5) for bfloat16, and 0 for all others.

    allow_subclasses   whether a tensor may be compared with one of a subclass
    check_...          whether devices, element types, layouts, strides must be equal, too
    msg                a text instead of the explanation, or a function from the explanation to a text

    `TypeError` for items that cannot be compared, `ValueError` for one tolerance without the other.
    """
    __tracebackhide__ = True
    options = Options(
        allow_subclasses=allow_subclasses,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=check_device,
        check_dtype=check_dtype,
        check_layout=check_layout,
        check_stride=check_stride,
    )
    error = _error(actual, expected, options, msg)
    if error is not None:
        raise error


def assert_allclose(
    actual: Arg,
    expected: Arg,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The older encoding of `assert_close`, which takes tensors and what they are made from, of any types and devices.

    Without tolerances, (rtol, atol) is (1e-3, 1e-3) for float16, (1e-4, 1e-5) for float32, (1e-5, 1e-8) for float64,
    the larger ones for two types, and 0 for all others.
    """
    __tracebackhide__ = True
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated; use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual, expected = as_tensor(actual), as_tensor(expected)
    if rtol is None and atol is None:
        pairs = [_FORMER_TOLERANCES.get(tensor.dtype, (0.0, 0.0)) for tensor in (actual, expected)]
        rtol, atol = map(max, zip(*pairs, strict=True))
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        msg=msg or None,
    )


def _error(actual: Arg, expected: Arg, options: Options, message: Message) -> Exception | None:
    """The error that two results deserve. What cannot be compared counts before what differs."""
    try:
        with using(grad=False):
            for compare in list(_comparisons(actual, expected, options)):
                compare()
    except _Failure as failure:
        return failure.as_error(message)
    return None


def _comparisons(
    actual: Arg, expected: Arg, options: Options, path: tuple[object, ...] = ()
) -> Iterator[Callable[[], None]]:
    """A function for each pair of items, which raises `_Failure` if they differ."""
    try:
        if _are(Sequence, actual, expected) and not _are(str, actual, expected):
            keys = _positions(actual, expected)
        elif _are(Mapping, actual, expected):
            keys = _keys(actual, expected)
        else:
            yield _located(_comparison(actual, expected, options), path)
            return
    except _Failure as failure:
        failure.path = failure.path or path
        raise
    for key in keys:
        yield from _comparisons(actual[key], expected[key], options, (*path, key))


def _are(kind: type | tuple[type, ...], actual: Arg, expected: Arg) -> bool:
    return isinstance(actual, kind) and isinstance(expected, kind)


def _positions(actual: Arg, expected: Arg) -> Sequence[int]:
    if len(actual) != len(expected):
        raise _Failure(MismatchError, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}")
    return range(len(actual))


def _keys(actual: Arg, expected: Arg) -> Sequence[object]:
    missing, additional = expected.keys() - actual.keys(), actual.keys() - expected.keys()
    if missing or additional:
        raise _Failure(
            MismatchError,
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
            f"Additional keys in the actual mapping: {sorted(additional, key=str)}",
        )
    return list(expected)


def _located(compare: Callable[[], None], path: tuple[object, ...]) -> Callable[[], None]:
    def located() -> None:
        try:
            compare()
        except _Failure as failure:
            failure.path = path
            raise

    return located


def _comparison(actual: Arg, expected: Arg, options: Options) -> Callable[[], None]:
    """How two items are compared, or `_Failure` if there is no way."""
    if actual is None or expected is None:
        return lambda: _compare_identity("None", actual, expected)
    if _are((bool, np.bool_), actual, expected):
        return lambda: _compare_identity("Booleans", bool(actual), bool(expected))
    if _are((int, float, complex, np.number), actual, expected):
        one, other = _number(actual), _number(expected)
        tolerances = options.tolerances(*[_NUMBERS[_kind(number)] for number in (one, other)])
        return lambda: _compare_numbers(one, other, options, *tolerances)
    tensors = _tensors(actual, expected, options)
    tolerances = options.tolerances(*[tensor.dtype for tensor in tensors])
    return lambda: _compare_tensors(*tensors, options, *tolerances)


def _compare_identity(what: str, actual: Arg, expected: Arg) -> None:
    if actual is not expected:
        raise _Failure(MismatchError, f"{what} mismatch: {actual} is not {expected}")


def _number(item: Arg) -> int | float | complex:
    return item.item() if isinstance(item, np.number) else item


def _kind(number: int | float | complex) -> type:
    return next(kind for kind in _NUMBERS if isinstance(number, kind))


def _compare_numbers(actual: Arg, expected: Arg, options: Options, rtol: float, atol: float) -> None:
    if options.check_dtype and type(actual) is not type(expected):
        raise _Failure(MismatchError, f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    if actual == expected or (options.equal_nan and isnan(actual) and isnan(expected)):
        return
    difference = abs(actual - expected)
    if not (isfinite(difference) and difference <= atol + rtol * abs(expected)):
        raise _Failure(MismatchError, scalars_differ(actual, expected, rtol, atol))


def _tensors(actual: Arg, expected: Arg, options: Options) -> tuple[Tensor, Tensor]:
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if related and (options.allow_subclasses or type(actual) is type(expected)):
        try:
            return as_tensor(actual), as_tensor(expected)
        except Exception:  # whatever a tensor cannot be made from
            pass
    raise _Failure(
        ArgumentError,
        f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}"
        f"{advice(actual) or advice(expected)}.",
    )


def _compare_tensors(actual: Tensor, expected: Tensor, options: Options, rtol: float, atol: float) -> None:
    for name, is_checked in (
        ("shape", True),
        ("layout", options.check_layout),
        ("stride()", options.check_stride),
        ("device", options.check_device),
        ("dtype", options.check_dtype),
    ):
        values = [_attribute(tensor, name) for tensor in (actual, expected)] if is_checked else [None, None]
        if values[0] != values[1]:
            raise _Failure(
                MismatchError, f"The values for attribute '{name}' do not match: {values[0]} != {values[1]}."
            )
    actual, expected = _alike(actual, expected)
    if actual.is_quantized:
        actual, expected = actual.dequantize(), expected.dequantize()
    if isinstance(actual, SparseTensor) and isinstance(expected, SparseTensor):
        _compare_stored(actual, expected, options, rtol, atol)
        return
    close = actual.isclose(expected, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
    if not close.all():
        raise _Failure(MismatchError, tensors_differ(actual, expected, close, rtol, atol))


def _compare_stored(actual: SparseTensor, expected: SparseTensor, options: Options, rtol: float, atol: float) -> None:
    """Compare what sparse tensors store: as many elements, at the same places, that are close."""
    kind = repr(actual.layout).rpartition("_")[2].upper()
    parts = [encoding_of(x.coalesce() if x.is_sparse else x).parts() for x in (actual, expected)]
    counts = [len(part["values"]) for part in parts]
    if counts[0] != counts[1]:
        raise _Failure(
            MismatchError,
            f"The number of specified values in sparse {kind} tensors does not match: {counts[0]} != {counts[1]}",
        )
    for name in sorted(parts[0], key="values".__eq__):  # indices first
        limits = (rtol, atol) if name == "values" else (0, 0)
        _compare_tensors(parts[0][name].detach(), parts[1][name].detach(), options, *limits)


def _attribute(tensor: Tensor, name: str) -> AttributeValue:
    return tensor.stride() if name == "stride()" else getattr(tensor, name)


def _alike(actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Both on one device and with one element type."""
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype != expected.dtype:
        kinds = [int64 if tensor.dtype in _UNSIGNED else tensor.dtype for tensor in (actual, expected)]
        common = promote_types(*kinds)
        actual, expected = actual.to(common), expected.to(common)
    return actual, expected
