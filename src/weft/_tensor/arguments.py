"""Checks and conversions of arguments, for each kind of parameter; `TypeError` for what PyTorch does not accept.

Each function takes the argument, and the names of the parameter and of the operator for errors. They are called from
generated functions (`codegen.py`), which handle the most common type themselves.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Sequence

import numpy as np

from weft._base.dtype import COMPLEX, INTEGER, DType, as_dtype, float64
from weft._base.guards import LIST, LIST_OR_TUPLE, SEQUENCE, TUPLE
from weft._base.of_pytorch import way_from_pytorch
from weft._base.overriding import Overridden
from weft._base.site import UNTIL_USER, end_at_user, raised_here, warn_user
from weft._base.types import Arg, Args, Kwargs
from weft._lazy.refusal import require_one_int64
from weft._lazy.value import Value
from weft._tensor.dim_names import position
from weft._tensor.kind_names import advice, is_of_other_library, kind_and_advice, kind_of
from weft._tensor.overriding import dispatched, flat, require_not_overridden
from weft._tensor.scalar import fitting, number
from weft._tensor.tensor import Tensor, operand
from weft.errors import ArgumentError, IntegerRangeError, WeftError
from weft.ops._kinds import Scalar
from weft.ops._table import OpDef


def refusal(x: object, name: str, op: str, expected: str) -> ArgumentError:
    """The error that names the given type and the expected one; an object that overrides functions is asked instead."""
    require_not_overridden(x)
    helps = "Tensor" in expected or not is_of_other_library(x)
    return ArgumentError(f"{op}(): argument '{name}' must be {expected}, not {kind_of(x)}{advice(x) if helps else ''}")


def not_implemented(other: object, op: str) -> Arg:
    """What an operator answers to an object that is no operand: Python then asks that object's class.

    Arrays of libraries that refuse tensors are refused here, by an error that says how to convert them. For `==`,
    Python would otherwise compare identities.
    """
    require_not_overridden(other)
    refuse_of_other_library(other, "other", op)
    return NotImplemented


def refuse_of_other_library(x: object, name: str, op: str) -> None:
    """Raise `TypeError` for an array of jax's or a tensor of PyTorch's, before anything is read of it.

    It has attributes with the names of a tensor's, such as `dtype`, whose values would be compared with ours.
    """
    if is_of_other_library(x):
        raise refusal(x, name, op, "Tensor")


def combination(op: str, *values: object) -> ArgumentError:
    """The error for types of arguments that an operator does not accept together."""
    kinds = ", ".join(map(kind_of, values))
    return ArgumentError(f"{op}() received an invalid combination of arguments - got ({kinds})")


LEAKS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""The exceptions that Python raises if arguments are used without having been checked."""


def leaked(op: str, error: Exception, args: Args) -> Exception:
    """The error to raise for an exception of `LEAKS`: itself, if it was raised on purpose or by the user's code.

    If an argument overrides functions, this is asked instead.
    """
    for x in flat(args, {}):
        require_not_overridden(x)
    if isinstance(error, WeftError) or not raised_here(error):
        return error
    way = next((text for x in flat(args, {}) if (text := way_from_pytorch(x))), "")
    return ArgumentError(f"{op}() received an invalid combination of arguments: {str(error).splitlines()[0]}{way}")


# --- one object -----------------------------------------------------------------------------------------------


def tensor(x: object, name: str, op: str) -> Tensor:
    """A tensor."""
    if isinstance(x, Tensor):
        return x
    raise refusal(x, name, op, "Tensor")


_NUMBERS = frozenset({bool, int, float, complex})  # known at once; a look at abstract classes takes a while
# As in `guards`: of an `Arg`, type checkers know no more afterwards.
_BOOLS: tuple[type, ...] = (bool, np.bool_)
_NUMPY: tuple[type, ...] = (np.generic,)
_READ: tuple[type, ...] = (Tensor, np.generic)
_REALS: tuple[type, ...] = (numbers.Real, np.bool_)
_SCALARS: tuple[type, ...] = (numbers.Number, np.generic)
_OPERANDS: tuple[type, ...] = (Tensor, *_SCALARS)


def tensor_or_number(x: Arg, name: str, op: str) -> Arg:
    """A tensor or a Python number."""
    if type(x) in _NUMBERS or isinstance(x, _OPERANDS):
        return x
    raise refusal(x, name, op, "Tensor")


def integer(x: Arg, name: str, op: str) -> int:
    """An int, or an object that can be converted to one, such as a tensor of one element; a bool cannot."""
    is_tensor = isinstance(x, Tensor)
    is_integer = x.dtype.category == INTEGER and x.numel() == 1 if is_tensor else not isinstance(x, _BOOLS)
    try:
        if is_integer:
            return operator.index(x)
    except TypeError:  # arrays have an `__index__` that most of them refuse
        pass
    raise refusal(x, name, op, "int")


def _is_number(x: Tensor) -> bool:
    """Whether a tensor can be used as a number: it has no dims and requires no gradient."""
    return not x.ndim and not x.requires_grad


def real(x: Arg, name: str, op: str) -> Scalar:
    """A float, or an object that can be converted to one, such as an int or a zero-dim tensor, which is read."""
    is_tensor = isinstance(x, Tensor)
    is_real = x.dtype.category < COMPLEX and _is_number(x) if is_tensor else isinstance(x, _REALS)
    if not is_real:
        raise refusal(x, name, op, "float")
    return x.item() if isinstance(x, _READ) else x


def floating(x: Arg, name: str, op: str) -> float:
    """A float, converted from a number."""
    try:
        return float(real(x, name, op))
    except OverflowError:
        raise IntegerRangeError(f"int too large to convert to float: argument '{name}' of {op}()") from None


def scalar(x: Arg, name: str, op: str) -> Scalar:
    """A number, or a zero-dim tensor that requires no gradient."""
    if type(x) in _NUMBERS or isinstance(x, _SCALARS) or (isinstance(x, Tensor) and _is_number(x)):
        return x
    raise refusal(x, name, op, "Number")


def flag(x: Arg, name: str, op: str) -> bool:
    """A bool."""
    if isinstance(x, _BOOLS):
        return bool(x)
    raise refusal(x, name, op, "bool")


def text(x: object, name: str, op: str) -> str:
    """A str."""
    if isinstance(x, str):
        return x
    raise refusal(x, name, op, "str")


def element_type(x: object, name: str, op: str) -> DType:
    """An element type. As in PyTorch, Python's `float` means float64."""
    try:
        return as_dtype(x, float64)
    except ArgumentError:
        raise refusal(x, name, op, "torch.dtype") from None


# --- several --------------------------------------------------------------------------------------------------


def tensors(x: Arg, name: str, op: str) -> Sequence[object]:
    """A sequence of tensors; `operands` checks its elements."""
    if isinstance(x, Tensor) or not isinstance(x, SEQUENCE):
        raise refusal(x, name, op, "tuple of Tensors")
    return x


def all_tensors(x: Sequence[Arg], position: int = 0) -> Sequence[Tensor]:
    """A sequence in which every element must be a tensor."""
    for at, entry in enumerate(x):
        if not isinstance(entry, Tensor):
            require_not_overridden(entry)
            raise ArgumentError(
                f"expected Tensor as element {at} in argument {position}, but got {kind_and_advice(entry)}"
            )
    return x


def operands(x: object, name: str, op: str, position: int) -> list[Value]:
    """The values of a sequence of tensors."""
    return [operand(entry) for entry in all_tensors(tensors(x, name, op), position)]


def ints(x: Arg, name: str, op: str) -> tuple[int, ...]:
    """A sequence of ints, as a tuple."""
    if not isinstance(x, LIST_OR_TUPLE):
        raise refusal(x, name, op, "tuple of ints")
    return tuple([s if type(s) is int else _part(s, at, name, op) for at, s in enumerate(x)])


def _part(x: object, at: int, name: str, op: str) -> int:
    require_not_overridden(x)
    try:
        return integer(x, name, op)
    except ArgumentError:
        raise ArgumentError(
            f"{op}(): argument '{name}' must be tuple of ints, but found element of type {kind_of(x)} at pos {at}"
        ) from None


def one_or_more_ints(x: Arg, name: str, op: str) -> Arg:
    """An int, or a sequence of ints."""
    if isinstance(x, LIST_OR_TUPLE):
        return ints(x, name, op)
    try:
        return integer(x, name, op)
    except ArgumentError:
        raise refusal(x, name, op, "tuple of ints") from None


def sizes(x: Arg, name: str, op: str) -> tuple[int, ...]:
    """Sizes in a sequence, or a single size."""
    numbers = one_or_more_ints(x, name, op)
    return numbers if isinstance(numbers, TUPLE) else (numbers,)


def sizes_one_by_one(x: Args, name: str, op: str) -> tuple[int, ...]:
    """Sizes that were given as separate arguments, or as one sequence."""
    if len(x) == 1:
        return sizes(x[0], name, op)
    if {*map(type, x)} == {int}:
        return x
    if not x:
        raise ArgumentError(f'{op}() missing 1 required positional arguments: "{name}"')
    return tuple([s if type(s) is int else _unpacked(s, at, name, op) for at, s in enumerate(x, 1)])


def _unpacked(x: object, at: int, name: str, op: str) -> int:
    try:
        return integer(x, name, op)
    except ArgumentError:
        raise ArgumentError(
            f"{op}(): argument '{name}' failed to unpack the object at pos {at} with error \"type must be tuple of "
            f'ints,but got {kind_of(x)}"'
        ) from None


def constant(x: Arg, name: str, op: str) -> Arg:
    """A static argument of a row, which must be hashable; lists become tuples, and a zero-dim tensor its number."""
    if isinstance(x, LIST):
        return tuple([constant(part, name, op) for part in x])
    if isinstance(x, _NUMPY) or (isinstance(x, Tensor) and _is_number(x)):
        return x.item()
    if isinstance(x, Tensor) or not is_hashable(x):
        raise refusal(x, name, op, "a number, a str or a tuple")
    return x


def is_hashable(x: object) -> bool:
    """Whether `x` can be part of a key, with everything that it contains."""
    try:
        hash(x)
    except TypeError:
        return False
    return True


def within(op: OpDef, *scalars: object) -> None:
    """Raise if a row's numbers are outside of its limits. Tensors are not read for this."""
    if op.check.limits is not None and not any(isinstance(x, Tensor | complex) for x in scalars):
        op.check.limits(*scalars)


def older(op: OpDef, args: Args, scalars: tuple[object, ...]) -> Kwargs:
    """The arguments by name of a call such as `add(input, alpha, other)`: numbers before the tensors but the first."""
    tensors = [p.name for p in op.params if not p.keyword_only]
    named = [p for p in op.params if p.keyword_only]
    count = len(args) - len(tensors) + 1
    first, rest = args[:count], args[count:]
    numbers = [x for x in first if not isinstance(x, Tensor)]
    is_default = all(x is p.default for x, p in zip(scalars, named, strict=True))
    fits = len(numbers) == count - 1 <= len(named) and all(isinstance(x, Tensor) for x in rest)
    if not fits or not is_default:
        raise ArgumentError(f"{op.name}() takes {len(tensors)} positional arguments but {len(args)} were given")
    names = [p.name for p in named][: len(numbers)]
    warn_user(
        f"This overload of {op.name} is deprecated:\n\t{op.name}({', '.join(names + tensors)})\nConsider using one of "
        f"the following signatures instead:\n\t{op.name}({', '.join([*tensors, '*', *names])})"
    )
    input = next(x for x in first if isinstance(x, Tensor))
    return dict(zip(tensors, (input, *rest), strict=True)) | dict(zip(names, numbers, strict=True))


# --- dims -----------------------------------------------------------------------------------------------------


def _named(of: Arg) -> Tensor | None:
    """The tensor whose dims may be given by name: `of`, or the first of a sequence; None if it has no names."""
    first = of[0] if isinstance(of, LIST_OR_TUPLE) and of else of
    return first if isinstance(first, Tensor) and first._read().aval.names is not None else None


def without_names(x: Arg, of: Arg) -> Arg:
    """A dim or several, with numbers for names; anything else as it is."""
    tensor = None
    if isinstance(x, str) or (isinstance(x, LIST_OR_TUPLE) and any(isinstance(part, str) for part in x)):
        tensor = _named(of)
    if tensor is None:
        return x
    if isinstance(x, str):
        return position(tensor, x)
    return tuple([position(tensor, part) if part is None or isinstance(part, str) else part for part in x])


def dim(x: Arg, name: str, op: str, of: Arg) -> int:
    """A dim: an integer, or a name of `of`."""
    return integer(without_names(x, of), name, op)


def own_dim(x: Arg, name: str, op: str, of: Arg) -> int:
    """A dim: an integer, or a name of `of`, as a number from the back."""
    if isinstance(x, str) and (tensor := _named(of)) is not None:
        return position(tensor, x) - tensor.ndim
    return integer(x, name, op)


def dims(x: Arg, name: str, op: str, of: Arg) -> Arg:
    """A dim or several: integers, or names of `of`."""
    return one_or_more_ints(without_names(x, of), name, op)


def dim_list(x: Arg, name: str, op: str, of: Arg) -> tuple[int, ...]:
    """Dims in a sequence, or a single dim: integers, or names of `of`."""
    return sizes(without_names(x, of), name, op)


def dims_one_by_one(x: tuple[object, ...], name: str, op: str, of: Arg) -> tuple[int, ...]:
    """Dims that were given as separate arguments, or as one sequence."""
    return sizes_one_by_one(tuple([without_names(entry, of) for entry in x]), name, op)


# --- inputs of rows -------------------------------------------------------------------------------------------


def operand_or_number(x: object, name: str, op: str) -> Value:
    """The value of a tensor or of a Python number."""
    return operand(x) if isinstance(x, Tensor) else number(x, name, op)


def filling(x: Arg, name: str, op: str, input: Tensor) -> Value:
    """The value of a tensor, or of a Python number that fits the element type of `input`."""
    if type(x) in _NUMBERS or (not isinstance(x, Tensor) and isinstance(x, _SCALARS)):
        x = fitting(x, input.dtype)
    return operand_or_number(x, name, op)


def scalar_value(x: object, name: str, op: str) -> Value:
    """The value of a Python number, or of a zero-dim tensor."""
    scalar(x, name, op)
    return operand(x) if isinstance(x, Tensor) else number(x)


def real_value(x: Arg, name: str, op: str) -> Value:
    """The value of a real number as a float, or of a zero-dim tensor of a real type."""
    if isinstance(x, Tensor) and _is_number(x) and x.dtype.category < COMPLEX:
        return operand(x)
    return number(floating(x, name, op))


def whole_value(x: Arg, name: str, op: str) -> Value:
    """The value of an int, or of a zero-dim tensor of integers."""
    if isinstance(x, Tensor) and not x.ndim and x.dtype.category == INTEGER:
        return operand(x)
    whole = integer(x, name, op)
    require_one_int64(op, name, whole)
    return number(whole)


# --- annotations ----------------------------------------------------------------------------------------------

Converter = Callable[[Arg, str, str], object]

BY_ANNOTATION: dict[str, tuple[str, Converter]] = {
    "Tensor": ("Tensor", tensor),
    "Tensor | Number": ("Tensor", tensor_or_number),
    "Number": ("", scalar),
    "int": ("int", integer),
    "float": ("float", real),
    "bool": ("bool", flag),
    "str": ("str", text),
    "DType": ("DType", element_type),
    "Sequence[Tensor]": ("", tensors),
    "Sequence[int]": ("", ints),
    "tuple[int, ...]": ("", ints),
    "int | Sequence[int]": ("int", one_or_more_ints),
    "Ints": ("int", one_or_more_ints),
}
"""For each annotation: the class that is accepted unchanged, and the converter for everything else.
Generated source calls the converter as `_<its name>`."""

OF_ROWS = BY_ANNOTATION | {"float": ("float", floating)}
"""As `BY_ANNOTATION`, for rows: their static floats must have the annotated type."""

OF_FUNCTIONAL = {annotation: kind for annotation, kind in BY_ANNOTATION.items() if annotation != "bool"}
"""As `BY_ANNOTATION`, for `nn.functional`: flags may be any object with a truth value, as in PyTorch."""

Dim = int
"""A dim of the tensor that comes first, by number or by name; the function gets the number."""
Dims = int | Sequence[int]
"""A dim or several, likewise."""
OwnDim = int
"""As `Dim`, but the function gets a name's number from the back."""
AnyDims = Arg
"""Anything; names in it, alone or in a sequence, are dims."""

_DIMS = {"Dim": "_dim", "Dims": "_dims", "OwnDim": "_own_dim"}
"""How generated source calls the converters of dims, by annotation."""

SCOPE: dict[str, object] = {
    **{f"_{c.__name__}": c for _, c in (*BY_ANNOTATION.values(), *OF_ROWS.values())},
    "_dim": dim,
    "_own_dim": own_dim,
    "_dims": dims,
    "_without_names": without_names,
    "_Tensor": Tensor,
    "_DType": DType,
    "_LEAKS": LEAKS,
    "_leaked": leaked,
    "_Overridden": Overridden,
    "_dispatched": dispatched,
    "_UNTIL_USER": UNTIL_USER,
    "_end_at_user": end_at_user,
}


def converted(
    name: str, op: str, annotation: str, kinds: dict[str, tuple[str, Converter]] = BY_ANNOTATION, first: str = ""
) -> str:
    """Source of an argument that is converted as its annotation says; of the argument alone where that says nothing.

    `first` is the parameter whose tensor may have names of dims.
    """
    base = annotation.removesuffix(" | None")
    if base in _DIMS:
        unless = f"type({name}) is int" + f" or {name} is None" * (base != annotation)
        return f"{name} if {unless} else {_DIMS[base]}({name}, {name!r}, {op!r}, {first})"
    if base == "AnyDims":
        return f"_without_names({name}, {first})"
    if base not in kinds:
        return name
    kind, convert = kinds[base]
    kind = f"_{kind}" if kind in ("Tensor", "DType") else kind
    at_once = [f"type({name}) is {kind}"] * bool(kind) + [f"{name} is None"] * (base != annotation)
    call = f"_{convert.__name__}({name}, {name!r}, {op!r})"
    return f"{name} if {' or '.join(at_once)} else {call}" if at_once else call
