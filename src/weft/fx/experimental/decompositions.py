"""Tables of decompositions, as PyTorch has them: they are empty, since operators are computed whole here."""

from __future__ import annotations

from collections.abc import Iterable

from weft._base.types import AnyCallable
from weft.ops._namespaces import OpOverload, OpOverloadPacket

# no cell: empty
decomposition_table: dict[OpOverload, AnyCallable] = {}


def get_decompositions(
    aten_ops: Iterable[OpOverload | OpOverloadPacket], type: str = "post_autograd"
) -> dict[OpOverload, AnyCallable]:
    """No decompositions: write a table for `make_fx`, `{operator: function}`, of those that you need."""
    del aten_ops, type
    return {}


def core_aten_decompositions() -> dict[OpOverload, AnyCallable]:
    """The same: none."""
    return {}
