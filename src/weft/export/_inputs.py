"""What a program reads besides its arguments, and how its results follow from all that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.types import Json
from weft._tensor.convert import from_jax_array
from weft._tensor.convert import tensor as new_tensor
from weft._tensor.tensor import Tensor
from weft.export._program import CONSTANTS, ArrayType
from weft.export._record import GENERATOR, ProgramRecording
from weft.export._sizes import Sizes
from weft.export._state import NamedState
from weft.ops._jax import jaxpr_as_fun

PREFIXES = {"parameter": "p", "buffer": "b", "constant": "c"}
"""The first letters of the names of state in a graph, by its kind; other kinds have s."""


class Inputs:
    """The state of a program: that of the function, options of optimizers, constants, and the generator."""

    def __init__(self, state: NamedState, recordings: Sequence[ProgramRecording]) -> None:
        first = recordings[0]
        self.tensors = dict(state.tensors)
        self.kinds = dict(state.kinds)
        self.names: dict[int, str] = {}  # of inputs of the jaxpr that are options or lifted constants
        self.draws = first.draws
        for at, source in enumerate(first.sources):
            if source.kind == "option":
                name, number = source.key
                self._add(at, name, "option", new_tensor(number, dtype=source.aval.dtype))
            elif (
                source.kind == "constant"
                and source.aval.shape
                and all(r.sources[at].key is source.key for r in recordings)
            ):
                self._add(at, f"{CONSTANTS}{len(self.names)}", "constant", from_jax_array(source.key))

    def _add(self, at: int, name: str, kind: str, tensor: Tensor) -> None:
        self.names[at] = name
        self.tensors.setdefault(name, tensor)
        self.kinds[name] = kind

    def structs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """jax's types of the state, by name."""
        structs: dict[str, jax.ShapeDtypeStruct] = {
            name: jax.ShapeDtypeStruct(tuple(x.shape), x.dtype.numpy) for name, x in self.tensors.items()
        }
        if self.draws:
            structs[GENERATOR] = jax.ShapeDtypeStruct((2,), np.int64)
            self.kinds[GENERATOR] = "generator"
        return structs

    def leaves(
        self, recordings: Sequence[ProgramRecording], inputs: Sequence[str], sizes: Sizes
    ) -> list[tuple[int, str, Json]]:
        """What the program reads, for its graph: a value's number, with the name and target of its placeholder.

        Constants have an empty name, and the constant as target.
        """
        leaves: list[tuple[int, str, Json]] = []
        for at, (number, source) in enumerate(zip(recordings[0].leaves, recordings[0].sources, strict=True)):
            if source.kind == "input":
                own = str(inputs[source.key])
                leaves.append((number, own, own))
            elif source.kind == "state" or at in self.names:
                name: str = self.names.get(at) or source.key
                leaves.append((number, f"{PREFIXES.get(self.kinds[name], 's')}_{name}", name))
            elif source.kind in ("seed", "draw"):
                leaves.append((number, source.kind, GENERATOR))
            else:
                leaves.append((number, "", sizes.json_constant([r.sources[at].key for r in recordings])))
        return leaves

    def types(self) -> dict[str, ArrayType]:
        """The types of the state, by name."""
        return {name: ArrayType(str(s.dtype), tuple(s.shape)) for name, s in self.structs().items()}


def computed(
    recordings: Sequence[ProgramRecording],
    sizes: Sizes,
    state: Inputs,
    arrays: dict[str, jax.Array],
    inputs: Sequence[object],
) -> tuple[tuple[jax.Array, ...], dict[str, jax.Array]]:
    """The outputs, and the state that has changed."""
    first = recordings[0]
    operands: list[Any] = []
    for at, sources in enumerate(zip(*[r.sources for r in recordings], strict=True)):
        source = sources[0]
        dtype = source.aval.dtype.numpy
        if source.kind == "number":
            operands.append(sizes.scalar([one.key for one in sources], dtype, "a number"))
        # Options and constant arrays are tensors of the program's state, and no part of its code.
        elif at in state.names:
            operands.append(arrays[state.names[at]])
        elif source.kind == "state":
            operands.append(arrays[source.key])
        elif source.kind == "input":
            operands.append(inputs[source.key])
        elif source.kind == "constant":
            operands.append(sizes.constant([one.key for one in sources]))
        else:
            seed, draw = arrays[GENERATOR]
            operands.append((seed if source.kind == "seed" else draw + source.key).astype(dtype))
    if len(recordings) == 1:
        results = jaxpr_as_fun(first.closed)(*operands)
    else:
        results = sizes.evaluate([one.closed for one in recordings], operands)
    changed = dict(zip(first.changed, results[first.count :], strict=True))
    if first.draws:
        # The next call draws other numbers, as the function would.
        changed[GENERATOR] = arrays[GENERATOR] + jnp.asarray([0, first.draws])
    return tuple(results[: first.count]), changed
