"""Classes that nothing is an instance of: for annotations, `isinstance` and as bases."""

from __future__ import annotations

from typing import Any

from weft._absent._making import kept
from weft.errors import UnsupportedCallError


class _Absent:
    """A class of PyTorch's own machinery. Making an instance raises `NotImplementedError`; a class of yours may."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise UnsupportedCallError(
            f"{type(self).__name__} is a class of PyTorch's own machinery, which Weft does without: nothing here takes "
            "or returns its instances"
        )


def __getattr__(name: str) -> Any:
    return kept(__name__, name, lambda: type(name, (_Absent,), {"__doc__": _Absent.__doc__}))
