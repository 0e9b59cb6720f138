"""Checks of the keys of dicts and items of sets in a file: they must not make look-ups slow."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from weft._base.guards import is_plain_tuple, is_tuple
from weft._base.own_names import is_own_module
from weft.errors import PickleError

_ATOMS = (str, int, float, bytes, complex, bool, type(None))
_RANDOM = (str, bytes)  # their hashes cannot be predicted
_MOST_PARTS = 64  # of a tuple
_MOST_TEXT = 1 << 16  # characters or bytes of a string
_MOST_BITS = 1 << 10  # of an integer
_MOST_TWINS = 16  # different keys with one hash
_OWN_HASH = range(-(1 << 60), 1 << 60)  # integers that are equal to their hashes, except -1


T = TypeVar("T")

Unpickled: TypeAlias = Any
"""What a pickle holds: anything, until it has been checked."""


class KeyChecker:
    """Checks the keys of one file before they are hashed for a container.

    Hashes of numbers, and of tuples of them, can be predicted: multiples of 2**61 - 1 have the hash 0. A dict with n
    keys of one hash takes n**2 comparisons, so a file may have only a few of them. Ordinary files have none.
    """

    def __init__(self) -> None:
        self._twins: dict[bytes, list[object]] = {}  # by hash, written as bytes, whose own hashes cannot be predicted

    def spread(self, key: T) -> T:
        """The key; `PickleError` if too many others have its hash. `TypeError` if it cannot be hashed."""
        kind = type(key)
        if kind in _RANDOM or (kind is int and key in _OWN_HASH):
            return key
        twins = self._twins.setdefault(hash(key).to_bytes(8, "little", signed=True), [])
        if key not in twins:
            twins.append(key)
            if len(twins) > _MOST_TWINS:
                raise PickleError(f"it has more than {_MOST_TWINS} keys of one hash, which would take for ever to tell")
        return key

    def checked(self, key: Unpickled) -> Unpickled:
        """The key of a pickle, checked by `spread` and for its type and size; `PickleError` if it is refused.

        It must be short, since a pickle may hash one key many times. Nested tuples are refused: hashing them may take
        for ever, or crash the process.
        """
        if type(key) is str and len(key) <= _MOST_TEXT:
            return key
        _check_count(key)
        for part in key if is_plain_tuple(key) else (key,):
            _check_part(part)
        return self.spread(key)


def _check_count(key: object) -> None:
    if is_tuple(key) and len(key) > _MOST_PARTS:
        raise PickleError(f"its pickle has a key of {len(key)} parts; {_MOST_PARTS} are allowed")


def _check_part(part: object) -> None:
    if not isinstance(part, _ATOMS) and not is_own_module(getattr(type(part), "__module__", "")):
        raise PickleError(
            f"its pickle has a key or an item of a set of type {type(part).__name__}; such may be strings, bytes, "
            "numbers, None, dtypes, devices, tensors and flat tuples of them"
        )
    if isinstance(part, _RANDOM) and len(part) > _MOST_TEXT:
        raise PickleError(f"its pickle has a key of {len(part)} characters; {_MOST_TEXT} are allowed")
    if isinstance(part, int) and part.bit_length() > _MOST_BITS:
        raise PickleError(f"its pickle has an integer of {part.bit_length()} bits as a key; {_MOST_BITS} are allowed")
    _check_count(part)
    if is_tuple(part):  # a Size
        for size in part:
            _check_part(size)
