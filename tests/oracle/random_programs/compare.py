"""What differs between what two runs of a program have left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracle.compare import arrays_differ
from tests.oracle.random_programs.observe import Facts


@dataclass(frozen=True)
class Difference:
    """What differs: of a kind, such as "stride()", and in words."""

    kind: str
    words: str

    def __bool__(self) -> bool:
        return bool(self.words)


NOTHING = Difference("", "")


Alike = Callable[[np.ndarray, np.ndarray], bool]


def bits(wanted: np.ndarray, found: np.ndarray) -> bool:
    """Whether two arrays are the same, signs of zeros included."""
    return wanted.dtype == found.dtype and wanted.shape == found.shape and wanted.tobytes() == found.tobytes()


def numbers(wanted: np.ndarray, found: np.ndarray) -> bool:
    """Whether two arrays are equal."""
    return wanted.dtype == found.dtype and np.array_equal(wanted, found)


def near(wanted: np.ndarray, found: np.ndarray) -> bool:
    """Whether two arrays are equal but for rounding."""
    return not arrays_differ(wanted, found, wider=1)


def difference(wanted: Facts, found: Facts, alike: Alike) -> Difference:
    """The first difference of two observations, with arrays compared by `alike`."""
    for name in [*wanted, *(name for name in found if name not in wanted)]:
        a, b = wanted.get(name), found.get(name)
        if not _same(a, b, alike):
            return Difference(_kind(name, a, b), f"{name}: {_shown(b)}, not {_shown(a)}")
    return NOTHING


def _kind(name: str, wanted: Any, found: Any) -> str:
    """What a fact is of, without names of tensors and numbers of lines."""
    if isinstance(wanted, Exception) or isinstance(found, Exception):
        return f"{type(wanted).__name__} and {type(found).__name__}"
    words = name.replace(".", " ").split()
    return " ".join(word for word in words if not (word[0] in "tr" and word[1:].isdigit()))


def _same(wanted: Any, found: Any, alike: Alike) -> bool:
    match wanted, found:
        case Exception(), Exception():  # the same `except` clauses catch both
            return isinstance(found, type(wanted))
        case np.ndarray(), np.ndarray():
            return alike(wanted, found)
        case list() | tuple(), list() | tuple():
            return len(wanted) == len(found) and all(_same(a, b, alike) for a, b in zip(wanted, found, strict=True))
        case (float(), float()) | (complex(), complex()) if alike is near:
            return bool(np.isclose(found, wanted, rtol=1e-2, atol=1e-5))
    return type(wanted) is type(found) and wanted == found


def _shown(x: Any) -> str:
    if isinstance(x, Exception):
        return f"{type(x).__name__}({str(x)[:200]})"
    return f"{x.tolist()} ({x.dtype})" if isinstance(x, np.ndarray) else repr(x)
