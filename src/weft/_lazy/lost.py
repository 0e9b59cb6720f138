"""Arrays that are gone: a program was to overwrite them, and has failed before its results were there.

Nothing of this package leaves one behind on purpose (`flushing`), but an error within XLA can. What does not need the
elements works all the same, such as `copy_` and `load_state_dict`, which write all of them; all else says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.core import Tracer

from weft._lazy.program import Graph
from weft._lazy.signature import Signature
from weft._lazy.trace import restricted
from weft._lazy.value import Value
from weft.errors import LostError


def is_lost(array: object) -> bool:
    """Whether an array's elements are gone."""
    return isinstance(array, jax.Array) and not isinstance(array, Tracer) and array.is_deleted()


def error_for(value: Value) -> LostError:
    """The error for a read of a value whose array is gone."""
    return LostError(
        f"the elements of a tensor of type {value.aval!r} are gone: a program that was to overwrite them has failed. "
        "Write them anew, by copy_() or load_state_dict()"
    )


def revive(graph: Graph) -> bool:
    """Put zeros in place of the leaves of a failed program that are gone; False if none is.

    `LostError` if an application reads one: a row like `copy`, whose result has the type of its first input, does not.
    """
    lost = [leaf for leaf in graph.inputs if is_lost(leaf.available)]
    for value in graph.nodes if lost else ():
        assert value.origin is not None, "a node is recorded"
        for at in _read(value.origin.signature):
            if is_lost(value.inputs[at].available):
                raise error_for(value.inputs[at])
    for leaf in lost:
        leaf.content = np.zeros(leaf.aval.shape, leaf.aval.dtype.numpy)
    return bool(lost)


def _read(signature: Signature) -> Sequence[int]:
    """Positions of the inputs on which the results of a signature depend."""
    return restricted(signature.trace, signature.trace.results).inputs
