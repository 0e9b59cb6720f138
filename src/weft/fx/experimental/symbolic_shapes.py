"""Questions about sizes that PyTorch's compiler may not know. Here sizes are numbers, so each has its answer."""

from __future__ import annotations

from typing import Any, TypeVar

from weft._symbols import SymBool as SymBool
from weft._symbols import SymFloat as SymFloat
from weft._symbols import SymInt as SymInt
from weft.errors import WeftError

T = TypeVar("T")


class GuardOnDataDependentSymNode(WeftError, RuntimeError):
    """A condition that depends on elements; nothing raises it."""


class ShapeEnv:
    """Takes PyTorch's options. It holds no symbols, since sizes are numbers."""

    def __init__(self, **options: object) -> None:
        del options


def guard_or_false(a: object) -> bool:
    """A condition, as a bool."""
    return bool(a)


guard_or_true = guard_bool = guard_size_oblivious = guard_or_false
definitely_true = statically_known_true = expect_true = guard_or_false


def definitely_false(a: object) -> bool:
    """Whether a condition does not hold."""
    return not a


statically_known_false = definitely_false


def guard_int(a: Any) -> int:
    """A size, as an int."""
    return int(a)


def guard_float(a: Any) -> float:
    """A number, as a float."""
    return float(a)


def guard_scalar(a: T) -> T:
    """The number."""
    return a


def hint_int(a: Any, fallback: int | None = None) -> int:
    """A size, as an int."""
    del fallback
    return int(a)


size_hint = hint_int


def sym_eq(x: object, y: object) -> bool:
    """Whether two sizes, or lists of them, are equal."""
    return x == y


def free_symbols(val: object) -> set[Any]:
    """The symbols in a size: none."""
    del val
    return set()


free_unbacked_symbols = free_symbols


def has_free_symbols(val: object) -> bool:
    """False."""
    del val
    return False


has_free_unbacked_symbols = is_symbolic = has_free_symbols


def has_hint(a: object) -> bool:
    """True."""
    del a
    return True


has_static_value = is_concrete_bool = is_concrete_int = is_concrete_float = has_hint


def constrain_range(a: object, *, min: int | None, max: int | None = None) -> None:
    """Does nothing: a size is what it is."""


def constrain_unify(a: object, b: object) -> None:
    """Does nothing: sizes are what they are."""
