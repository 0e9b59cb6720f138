"""Cases: one call of one operator, with PyTorch's answer, free of either framework; and the files that hold them.

Arguments and answers are trees that JSON can hold. Tensors are `{"tensor": index, "grad": bool}` into the case's
list of NumPy arrays; what JSON lacks is an object with one key: `tuple`, `dict`, `slice`, `complex`, `dtype`,
`ellipsis`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ANSWERS = Path(__file__).parent / "answers"

DTYPES = ("float32", "float64", "int64", "bool", "bfloat16", "complex64")

_NUMPY = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


class Unsupported(Exception):
    """An argument that no tree can hold, such as a generator."""


@dataclass
class Case:
    """One call and its answer.

    form       "function", "method" or "in-place"
    target     public path of what is called, such as "nn.functional.relu"
    gradients  for each argument tensor with "grad", an index into `arrays`, or None where no gradient flows
    """

    op: str
    form: str
    target: str
    dtype: str
    args: Any = None
    kwargs: Any = None
    outputs: Any = None
    gradients: list[int | None] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Names the case in a report."""
        return f"{self.target} [{self.form}, {self.dtype}] {json.dumps([self.args, self.kwargs])}"

    @property
    def writes(self) -> bool:
        """Whether the call writes to its first argument, which must be no leaf then."""
        return self.target.endswith("_") and not self.target.endswith("__")

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in self.arrays)


Tree = Any


def encode(x: Any, leaf: Callable[[Any], Tree | None]) -> Tree:
    """`x` as a tree. `leaf` encodes what belongs to a framework, and returns None for anything else."""
    if x is None or isinstance(x, (bool, str)):
        return x
    if isinstance(x, (int, float)):
        return int(x) if isinstance(x, int) else float(x)
    found = leaf(x)
    if found is not None:
        return found
    match x:
        case complex():
            return {"complex": [x.real, x.imag]}
        case list():
            return [encode(i, leaf) for i in x]
        case tuple():
            return {"tuple": [encode(i, leaf) for i in x]}
        case dict():
            return {"dict": {k: encode(v, leaf) for k, v in x.items()}}
        case slice():
            return {"slice": [encode(i, leaf) for i in (x.start, x.stop, x.step)]}
        case _ if x is Ellipsis:
            return {"ellipsis": True}
    raise Unsupported(type(x).__name__)


def decode(tree: Tree, leaf: Callable[[Tree], Any]) -> Any:
    """What a tree stands for. `leaf` makes tensors and dtypes."""
    if isinstance(tree, list):
        return [decode(i, leaf) for i in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, inner),) = tree.items() if len(tree) == 1 else [("", None)]
    match kind:
        case "tuple":
            return tuple(decode(i, leaf) for i in inner)
        case "dict":
            return {k: decode(v, leaf) for k, v in inner.items()}
        case "slice":
            return slice(*(decode(i, leaf) for i in inner))
        case "complex":
            return complex(*inner)
        case "ellipsis":
            return Ellipsis
    return leaf(tree)


def cotangent(shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """The fixed weights of an output of which gradients are taken; float64 or complex128."""
    angle = np.arange(np.prod(shape, dtype=int), dtype=np.float64) * 1.7 + 0.3
    weights = np.exp(1j * angle) if is_complex else np.cos(angle)
    return weights.reshape(shape)


# --- files --------------------------------------------------------------------------------------------------------


def save(path: Path, cases: list[Case]) -> None:
    """Write cases as one compressed file; the same cases make the same bytes."""
    headers, chunks = [], []
    for case in cases:
        header = asdict(case)
        header["arrays"] = [(a.dtype.name, a.shape) for a in case.arrays]
        headers.append(header)
        chunks += [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in case.arrays]
    text = np.frombuffer(json.dumps(headers).encode(), np.uint8)
    np.savez_compressed(path, cases=text, data=np.concatenate([np.zeros(0, np.uint8), *chunks]))


def load(path: Path) -> list[Case]:
    """Read what `save` wrote."""
    with np.load(path) as stored:
        headers, data = json.loads(stored["cases"].tobytes()), stored["data"]
    cases, at = [], 0
    for header in headers:
        arrays = []
        for name, shape in header["arrays"]:
            dtype = _NUMPY.get(name) or np.dtype(name)
            size = int(np.prod(shape, dtype=int)) * dtype.itemsize
            arrays.append(data[at : at + size].view(dtype).reshape(shape))
            at += size
        cases.append(Case(**{**header, "arrays": arrays}))
    return cases
