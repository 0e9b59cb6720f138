"""The named tuples of functions with several results."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from weft._base.guards import is_dict
from weft._base.own_names import public_form
from weft._base.types import AnyCallable
from weft.errors import ArgumentError
from weft.ops._table import TABLE, OpDef

# no cell: a cache, keyed by all that its entries depend on
_of_rows: dict[OpDef, AnyCallable] = {}
# no cell: a cache, keyed by all that its entries depend on
_by_name: dict[str, AnyCallable] = {}


def tuple_of(op: OpDef) -> AnyCallable:
    """What makes the results of a row with several outputs: a named tuple, if the outputs have names."""
    kind = _of_rows.get(op)
    if kind is None:
        if not op.outputs:
            return _unnamed
        name = op.name.removesuffix("_dim")
        kind = _of_rows[op] = named_result(f"linalg_{name}" if op.public.module == "linalg" else name, op.outputs)
    return kind


def _unnamed(*results: object) -> tuple[object, ...]:
    return results


def named_result(name: str, fields: Sequence[str]) -> AnyCallable:
    """A tuple type that prints as PyTorch's `return_types`.

    It takes the results one by one or, as PyTorch's and so its pickles do, in a sequence.
    """
    assert name not in _by_name, "there is one type of each name"

    def show(self: tuple[object, ...]) -> str:
        inner = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{inner})"

    def new(kind: Any, *results: Any) -> Any:
        if len(results) == 1 or is_dict(results[-1]):  # the dict is for further fields, which no type has
            results = tuple(results[0])
        if len(results) != len(fields):
            raise ArgumentError(
                f"torch.return_types.{name}() takes a {len(fields)}-sequence ({len(results)}-sequence given)"
            )
        return kind._make(results)

    def reduce(self: tuple[object, ...]) -> tuple[object, ...]:
        further: dict[str, object] = {}
        return type(self), (tuple(self), further)

    members = {
        "__slots__": (),
        "__module__": public_form("weft.return_types"),
        "__new__": new,
        "__repr__": show,
        "__reduce__": reduce,
    }
    kind = _by_name[name] = type(name, (namedtuple(name, fields),), members)  # pyright: ignore[reportUntypedNamedTuple]  the names come from a row
    return kind


def result_types() -> dict[str, AnyCallable]:
    """The types of the results of public functions, by name."""
    for row in TABLE.values():
        if _is_public(row):
            tuple_of(row)
    internal = {kind for row, kind in _of_rows.items() if not _is_public(row)}
    return {name: kind for name, kind in sorted(_by_name.items()) if kind not in internal}


def _is_public(row: OpDef) -> bool:
    return bool(row.outputs) and (row.public.function or row.name.endswith("_dim"))
