"""Assertions in programs: `torch._check` and similar functions, which raise builtin exceptions."""

from __future__ import annotations

from collections.abc import Callable

from weft._base.dtype import bool_
from weft._tensor.overriding import overridable
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ConversionError

_USUAL = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
    "enhancement request to PyTorch.)"
)


def _asserting(name: str, error: type[Exception]) -> Callable[..., None]:
    def check(cond: object, message: Callable[[], object] | None = None) -> None:
        if isinstance(cond, Tensor):
            raise ArgumentError(
                "cond must be a bool, but got a Tensor. For tensor conditions, use torch._check_tensor_all() to assert "
                "that all elements are true."
            )
        if not isinstance(cond, bool):
            raise ArgumentError(f"cond must be a bool, but got {type(cond)}")
        if not cond:
            raise error(_text(message))

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"`{error.__name__}` with what `message()` gives, unless `cond` is true."
    return check


def _text(message: Callable[[], object] | None) -> str:
    if message is None:
        return _USUAL
    if not callable(message):
        raise ArgumentError("message must be a callable")
    return str(message())


_check = _asserting("_check", RuntimeError)
_check_index = _asserting("_check_index", IndexError)
_check_value = _asserting("_check_value", ValueError)
_check_type = _asserting("_check_type", TypeError)
_check_not_implemented = _asserting("_check_not_implemented", NotImplementedError)


def _check_with(error_type: type[Exception], cond: object, message: Callable[[], object] | None = None) -> None:
    """An error of a type of one's own with what `message()` gives, unless `cond` is true."""
    _asserting("_check_with", error_type)(cond, message)


def _check_is_size(i: int, message: Callable[[], object] | None = None, *, max: int | None = None) -> None:
    """`RuntimeError` unless a number can be the size of a dim, and is `max` at most."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all(cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise `RuntimeError` with the text `message()` unless all elements of a bool tensor are true. Waits for them."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: object, message: Callable[[], object] | None = None
) -> None:
    """The same with an error of a type of one's own."""
    if not isinstance(cond, Tensor):
        raise ArgumentError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not bool_:
        raise ArgumentError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    if not bool(cond._host().all()):
        raise error_type(_text(message))


@overridable
def _assert(condition: object, message: str) -> None:
    """`AssertionError` with the message unless the condition is true, as the statement `assert` raises it."""
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """Raise `RuntimeError` unless the only element is nonzero. Waits for it."""
    if not input:
        raise ConversionError(assert_msg)
