"""One application of each row of the operator table: small arrays and static arguments.

Where a row takes tensors of one shape and little else, its sample is made from its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.dtype import float64
from weft.ops._table import TENSOR_KINDS, Kind, OpDef, REQUIRED


@dataclass(frozen=True)
class Sample:
    """A row with its tensor inputs, flat and in order, and the rest by name (`Many` tensors as their count)."""

    op: OpDef
    arrays: tuple[jax.Array, ...]
    static: dict[str, Any]

    def arguments(self, arrays: Sequence[jax.Array]) -> tuple[list[Any], dict[str, Any]]:
        """What the body is called with."""
        rest = iter(arrays)
        args, kwargs = [], {}
        for param in self.op.params:
            value = self.static[param.name]
            if param.kind in TENSOR_KINDS and value is not None:
                value = _taken(rest, value)
            elif param.kind is Kind.SCALAR and value is not None:
                value = jnp.asarray(value)
            elif param.kind is Kind.KEY:
                value = jax.random.key(0)
            if param.keyword_only:
                kwargs[param.name] = value
            else:
                args.append(value)
        return args, kwargs


def _taken(rest: Iterator[jax.Array], count: int) -> Any:
    """The next input, or (below zero) so many as a tuple."""
    return next(rest) if count > 0 else tuple(next(rest) for _ in range(-count))


def numbers(*shape: int, kind: str = "float", low: float = 0.1, high: float = 0.9) -> np.ndarray[Any, Any]:
    """Numbers without ties in a scrambled order; the domain of most functions has (0.1, 0.9)."""
    count = int(np.prod(shape))
    order = np.random.default_rng(count).permutation(count)
    found = (low + (high - low) * (order + 1) / (count + 1)).reshape(shape)
    match kind:
        case "int":
            return (order % 7 + 1).reshape(shape)
        case "bool":
            return order.reshape(shape) % 2 == 0
        case "complex":
            return found + 0.5j * found[..., ::-1] if shape else found + 0.5j
    return found


def indices(*shape: int, below: int) -> np.ndarray[Any, Any]:
    """Indices from 0 up to a bound."""
    return numbers(*shape, kind="int") % below


def symmetric(n: int = 4) -> np.ndarray[Any, Any]:
    """Two positive definite matrices."""
    a = numbers(2, n, n)
    return a @ a.swapaxes(1, 2) + np.eye(n)


_X = numbers(4, 2, 6)
_SQUARE = numbers(2, 4, 4) + 2 * np.eye(4)
_IMAGE = numbers(2, 4, 6, 6)
GIVEN: dict[str, dict[str, Any]] = {}
"""Arguments by name of rows that the parameters alone do not tell; arrays stand for tensors."""


_SHAPES = ((4, 2, 6), (2, 4, 4), (4, 6), (6,))
_KINDS = ("float", "int", "bool", "complex")


def sample_of(op: OpDef) -> Sample | None:
    """The sample of a row, or None where there is none that its body takes."""
    if op.name in GIVEN:
        return _sample(op, GIVEN[op.name])
    for shape in _SHAPES:
        for kind in _KINDS:
            found = _automatic(op, shape, kind)
            if found is not None and _fits(found):
                return found
    return None


def _automatic(op: OpDef, shape: tuple[int, ...], kind: str) -> Sample | None:
    given: dict[str, Any] = {}
    for at, param in enumerate(op.params):
        if param.default is not REQUIRED:
            continue
        match param.kind:
            case Kind.ARRAY | Kind.OPERAND:
                given[param.name] = np.roll(numbers(*shape, kind=kind), at)
            case Kind.ARRAYS:
                given[param.name] = [np.roll(numbers(*shape, kind=kind), i) for i in range(2)]
            case Kind.SCALAR:
                given[param.name] = 2
            case Kind.DIM | Kind.DIMS:
                given[param.name] = 0
            case Kind.SHAPE:
                given[param.name] = (4, 2)
            case Kind.DTYPE:
                given[param.name] = float64
            case Kind.STATIC:
                return None
    return _sample(op, given)


def _sample(op: OpDef, given: dict[str, Any]) -> Sample:
    arrays: list[Any] = []
    static: dict[str, Any] = {}
    for param in op.params:
        value = given.get(param.name, None if param.default is REQUIRED else param.default)
        if param.kind in TENSOR_KINDS and value is not None:
            several = isinstance(value, list)
            arrays.extend(value if several else [value])
            value = -len(value) if several else 1
        static[param.name] = value
    return Sample(op, tuple(map(jnp.asarray, arrays)), static)


def _fits(sample: Sample) -> bool:
    """Whether the body and the rule take the sample."""
    try:
        assert sample.op.dims is not None
        sample.op.dims([a.shape for a in sample.arrays], sample.static)
        args, kwargs = sample.arguments(sample.arrays)
        jax.eval_shape(lambda: sample.op.impl(*args, **kwargs))
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, NotImplementedError):
        return False
    return True
