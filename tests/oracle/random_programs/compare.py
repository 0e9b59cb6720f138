"""What differs between what two runs of a program have left."""

from __future__ import annotations

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


def difference(wanted: Facts, found: Facts, *, exact: bool = False) -> Difference:
    """The first difference of two observations; `exact` asks for equal bits."""
    for name in [*wanted, *(name for name in found if name not in wanted)]:
        words = _differ(wanted.get(name), found.get(name), exact)
        if words:
            return Difference(_kind(name, wanted.get(name), found.get(name)), f"{name}: {words}")
    return NOTHING


def _kind(name: str, wanted: Any, found: Any) -> str:
    """What a fact is of, without names of tensors and numbers of lines."""
    if isinstance(wanted, Exception) or isinstance(found, Exception):
        return f"{type(wanted).__name__} and {type(found).__name__}"
    words = name.replace(".", " ").split()
    return " ".join(word for word in words if not (word[0] in "tr" and word[1:].isdigit()))


def _differ(wanted: Any, found: Any, exact: bool) -> str:
    if isinstance(wanted, Exception) or isinstance(found, Exception):
        return "" if _alike(wanted, found) else f"{_shown(found)}, not {_shown(wanted)}"
    if isinstance(wanted, np.ndarray) and isinstance(found, np.ndarray):
        if exact:
            same = wanted.dtype == found.dtype and wanted.tobytes() == found.tobytes() and wanted.shape == found.shape
            return "" if same else f"{_shown(found)}, not {_shown(wanted)}"
        return arrays_differ(wanted, found, wider=1) and f"{_shown(found)}, not {_shown(wanted)}"
    if isinstance(wanted, np.ndarray) or isinstance(found, np.ndarray) or not _same(wanted, found, exact):
        return f"{_shown(found)}, not {_shown(wanted)}"
    return ""


def _alike(wanted: Any, found: Any) -> bool:
    """Whether two exceptions are caught by the same `except` clauses."""
    return isinstance(wanted, Exception) and isinstance(found, type(wanted))


def _same(wanted: Any, found: Any, exact: bool) -> bool:
    if isinstance(wanted, (list, tuple)) and isinstance(found, (list, tuple)):
        return len(wanted) == len(found) and all(_same(a, b, exact) for a, b in zip(wanted, found, strict=True))
    if isinstance(wanted, (float, complex)) and type(wanted) is type(found) and not exact:
        return bool(np.isclose(found, wanted, rtol=1e-2, atol=1e-5, equal_nan=True))
    return type(wanted) is type(found) and (wanted == found or wanted != wanted)


def _shown(x: Any) -> str:
    if isinstance(x, Exception):
        return f"{type(x).__name__}({str(x)[:200]})"
    return f"{x.tolist()} ({x.dtype})" if isinstance(x, np.ndarray) else repr(x)
