"""Undoing what a program that did not fit into memory was to write.

A tensor that was written in a step refers to a value which is not computed yet. If the step's program fails, every
later one that reads the tensor would have to compute the step first, and fail as well. So the tensor gets back what it
had: its last value in memory, which the graph of the failed step still has.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable

from weft._lazy.living import array_in_memory
from weft._lazy.running import on_exhausted
from weft._lazy.value import Value, inputs_first
from weft._tensor.base import TensorBase, value_of
from weft._tensor.view import set_value


def undo_writes(large: Iterable[Value]) -> None:
    """Give tensors whose new contents depend on these values, which did not fit, their last ones in memory again.

    Contents that XLA had begun to overwrite are not there any more; then the tensor stays as it is.
    """
    without = {id(value) for value in large}
    written = [x for x in gc.get_objects() if issubclass(type(x), TensorBase) and _is_written(x)]
    leaves: dict[int, Value] = {}
    seen: set[int] = set()
    for tensor in written:
        latest = value_of(tensor)
        assert latest is not None, "it was written"
        for value in inputs_first(latest, lambda x: id(x) not in seen, lambda x: x.is_pending):
            seen.add(id(value))
            if not value.is_pending:
                leaves[value.time] = value
            elif any(id(x) in without for x in value.inputs):
                without.add(id(value))
    for tensor in written:
        before = leaves.get(tensor._overwritten)
        if id(value_of(tensor)) in without and before is not None and array_in_memory(before) is not None:
            set_value(tensor, before)


def _is_written(tensor: TensorBase) -> bool:
    """Whether a tensor owns its storage, and was written to since it was in memory."""
    value = value_of(tensor)
    return type(value) is Value and value.is_pending and tensor._alias is None and tensor._overwritten > 0


on_exhausted(undo_writes)
