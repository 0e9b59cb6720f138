"""Comparison of an answer with what was computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.cases import Case, Tree, decode
from tests.oracle.known import SIGN_FREE, WIDER, is_undefined
from weft import Tensor

# (relative, absolute); both frameworks add and round in orders of their own
TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "complex128": (1e-7, 1e-7),
    "float32": (1e-5, 1e-5),
    "complex64": (1e-5, 1e-5),
    "bfloat16": (3e-2, 1e-2),
    "float16": (1e-3, 1e-3),
}


def difference(case: Case, outputs: Any, gradients: list[Tensor | None]) -> str:
    """What differs between a case's answer and `outputs` and `gradients`; empty when nothing does."""
    fault = _tree(case, case.outputs, outputs, "output")
    if fault:
        return fault
    for at, (index, found) in enumerate(zip(case.gradients, gradients, strict=False)):
        wanted = None if index is None else case.arrays[index]
        fault = _gradient(case, wanted, found)
        if fault:
            return f"gradient {at} {fault}"
    return ""


def _gradient(case: Case, wanted: np.ndarray | None, found: Tensor | None) -> str:
    """A missing gradient and one of zeros are the same."""
    if found is None:
        return "" if wanted is None or not np.any(wanted) else "is missing"
    array = found._host()
    return arrays_differ(np.zeros_like(array) if wanted is None else wanted, array, WIDER.get(case.op, 1))


def _tree(case: Case, tree: Tree, found: Any, where: str) -> str:
    if isinstance(tree, dict) and "tensor" in tree:
        if not isinstance(found, Tensor):
            return f"{where} is {type(found).__name__}, not Tensor"
        wanted = case.arrays[tree["tensor"]]
        # The type and the shape are known before anything is computed.
        undefined = np.broadcast_to(np.zeros((), found.dtype.numpy), found.shape) if is_undefined(case) else None
        array = found._host() if undefined is None else undefined
        if case.op in SIGN_FREE:
            wanted, array = np.abs(wanted), np.abs(array)
        fault = arrays_differ(wanted, array, WIDER.get(case.op, 1))
        return f"{where} {fault}" if fault else ""
    parts = tree["tuple"] if isinstance(tree, dict) and "tuple" in tree else tree
    if isinstance(parts, list):
        if not isinstance(found, (tuple, list)) or len(found) != len(parts):
            return f"{where} is {found!r}, not a sequence of {len(parts)}"
        faults = (_tree(case, part, found[at], f"{where}[{at}]") for at, part in enumerate(parts))
        return next(filter(None, faults), "")
    return _plain(decode(tree, lambda inner: inner.get("dtype")), found, where)


def _plain(wanted: Any, found: Any, where: str) -> str:
    if type(wanted) is type(found) and isinstance(wanted, (float, complex)):
        same = np.isclose(wanted, found, equal_nan=True)
    else:
        same = wanted == getattr(found, "name", found)  # dtypes go by name
    return "" if same else f"{where} is {found!r}, not {wanted!r}"


def arrays_differ(wanted: np.ndarray, found: np.ndarray, wider: float) -> str:
    """What differs between two arrays; `wider` scales the tolerance of their dtype."""
    if wanted.dtype != found.dtype:
        return f"has dtype {found.dtype}, not {wanted.dtype}"
    if wanted.shape != found.shape:
        return f"has shape {found.shape}, not {wanted.shape}"
    if wanted.dtype.name not in TOLERANCES:
        return "" if np.array_equal(wanted, found) else _shown(wanted, found, wanted != found)
    relative, absolute = (wider * t for t in TOLERANCES[wanted.dtype.name])
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = wanted.astype(wide), found.astype(wide)
    if a.dtype != wanted.dtype:  # sums of short numbers err by a share of their largest terms
        absolute *= max(1.0, float(np.max(np.abs(a), initial=0, where=np.isfinite(a))))
    with np.errstate(all="ignore"):
        bad = ~np.isclose(b, a, rtol=relative, atol=absolute, equal_nan=True)
    return _shown(wanted, found, bad) if bad.any() else ""


def _shown(wanted: np.ndarray, found: np.ndarray, bad: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"differs in {int(bad.sum())} of {bad.size} elements, first at {at}: {found[at]}, not {wanted[at]}"
