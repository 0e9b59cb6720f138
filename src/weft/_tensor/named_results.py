"""The named tuples of functions with several results."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from weft.ops._table import TABLE, OpDef

# no cell: a cache, keyed by all that its entries depend on
_of_rows: dict[OpDef, Any] = {}
# no cell: a cache, keyed by all that its entries depend on
_by_name: dict[str, Any] = {}


def tuple_of(op: OpDef) -> Any:
    """What makes the results of a row with several outputs: a named tuple, if the outputs have names."""
    kind = _of_rows.get(op)
    if kind is None:
        if not op.outputs:
            return lambda *results: results
        name = op.name.removesuffix("_dim")
        kind = _of_rows[op] = named_result(f"linalg_{name}" if op.public.module == "linalg" else name, op.outputs)
    return kind


def named_result(name: str, fields: Sequence[str]) -> Any:
    """A tuple type that prints as PyTorch's `return_types`."""
    assert name not in _by_name, "there is one type of each name"

    def show(self: Any) -> str:
        inner = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{inner})"

    members = {"__slots__": (), "__repr__": show, "__module__": "weft.return_types"}
    kind = _by_name[name] = type(name, (namedtuple(name, fields),), members)
    return kind


def result_types() -> dict[str, Any]:
    """The types of the results of public functions, by name."""
    for row in TABLE.values():
        if _is_public(row):
            tuple_of(row)
    internal = {kind for row, kind in _of_rows.items() if not _is_public(row)}
    return {name: kind for name, kind in sorted(_by_name.items()) if kind not in internal}


def _is_public(row: OpDef) -> bool:
    return bool(row.outputs) and (row.public.function or row.name.endswith("_dim"))
