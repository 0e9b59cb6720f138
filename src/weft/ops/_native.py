"""Bodies beside XLA's: a library's kernels or our own, for the calls in which they are faster.

A row names such bodies, each for one type of device. Compiled programs take them for a call and for its first
derivative. All else follows from the row's own body: types, the interpreted tier, higher derivatives, forward mode and
batches of `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft._base import config
from weft._base.types import Arg

LEAST_DONATION = 4096
"""Bytes of an array from which on a program may overwrite it; a smaller one is not worth a program of its own."""


@dataclass(frozen=True, slots=True)
class Native:
    """A body for one type of device.

    device  the type, such as "cuda"
    serves  (the row's parameters, structs in place of arrays) -> whether it computes this call; like the others, it may
            name only the parameters that it needs
    impl    as the row's, with outputs of equal types; its arrays have the types of the call, also 16-bit floats
    vjp     as the row's; of the arrays it reads no more than the row's derivative does. None: that of XLA's is taken
    """

    device: str
    serves: Callable[..., bool]
    impl: Callable[..., Any]
    vjp: Callable[..., Any] | None = None


def is_number(x: object, number: float) -> bool:
    """Whether a parameter that may be an input of the program is left at this number."""
    return isinstance(x, int | float) and x == number


def serving(
    natives: Sequence[Native], device_type: str, args: Sequence[Arg], kwargs: Mapping[str, Arg]
) -> Native | None:
    """The first of these bodies that computes a call with these arguments on such a device, or None."""
    if not config.NATIVE:
        return None
    return next((n for n in natives if n.device == device_type and n.serves(*args, **kwargs)), None)
