"""Flattening of arguments and results into their arrays or tensors, and the structure around these.

Containers are jax's pytrees, so all types that are registered there are flattened (named tuples, optax states, flax
structs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.types import PyTree
from weft._tensor.convert import from_jax_array
from weft._tensor.tensor import Tensor


class _InputSlot:
    """A placeholder for an input in a structure."""

    def __repr__(self) -> str:
        return "<input>"


_SLOT = _InputSlot()


@dataclass(frozen=True, slots=True)
class Flat:
    """A flattened structure: its inputs; `rest`, its leaves with placeholders for the inputs; and the tree of jax."""

    inputs: list[Any]
    rest: tuple[Any, ...]
    tree: Any

    def rebuilt(self, inputs: Sequence[object]) -> PyTree:
        """The structure with these inputs."""
        following = iter(inputs)
        return jax.tree.unflatten(self.tree, [next(following) if x is _SLOT else x for x in self.rest])

    def marked(self, marks: Sequence[object]) -> PyTree:
        """The structure with these marks in place of its inputs, and None for everything else."""
        following = iter(marks)
        return jax.tree.unflatten(self.tree, [next(following) if x is _SLOT else None for x in self.rest])

    def with_tensors(self) -> PyTree:
        """The structure with tensors in place of its arrays, as `tensor_of` makes them."""
        return self.rebuilt([tensor_of(a) for a in self.inputs])


def _flattened(structure: PyTree, is_input: Callable[[PyTree], bool]) -> Flat:
    leaves, tree = jax.tree.flatten(structure, is_leaf=is_input)
    inputs = [x for x in leaves if is_input(x)]
    return Flat(inputs, tuple(_SLOT if is_input(x) else x for x in leaves), tree)


def arrays_in(structure: PyTree) -> Flat:
    """The structure, flattened; its jax and NumPy arrays are the inputs."""
    return _flattened(structure, lambda x: isinstance(x, (jax.Array, np.ndarray, np.generic)))


def tensors_in(structure: PyTree) -> Flat:
    """The structure, flattened; its tensors are the inputs, and its arrays, which become tensors."""
    flat = _flattened(structure, lambda x: isinstance(x, (Tensor, jax.Array, np.ndarray)))
    return Flat([x if isinstance(x, Tensor) else tensor_of(x) for x in flat.inputs], flat.rest, flat.tree)


def tensor_of(array: object) -> Tensor:
    """A tensor that shares a jax array's elements, or holds a copy of a NumPy array's."""
    return from_jax_array(array if isinstance(array, jax.Array) else jnp.array(array))
