"""Shardings of operators that users state, in place of those that follow from dim rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft._base.cell import Registry
from weft._base.guards import is_list_or_tuple
from weft._base.types import Kwargs
from weft.distributed.tensor._placements import Placement, Placements
from weft.distributed.tensor._propagate import WHOLE, Strategy
from weft.errors import ArgumentError, PreconditionError
from weft.ops._dims import Sizes
from weft.ops._kinds import TENSOR_KINDS
from weft.ops._table import TABLE, OpDef

Stated = Callable[..., Sequence[tuple[Sequence[Placement], Sequence[Placement | None]]]]


@dataclass(frozen=True)
class ArgumentMeta:
    """A tensor, as the functions under `register_sharding` get it: its sizes."""

    shape: Sizes

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)


_stated = Registry[str, Stated]("how operators run on parts")


def register_sharding(op: object) -> Callable[[Stated], Stated]:
    """State how an operator, or several, may run on parts, along one dim of a mesh.

    `op` is an operator's function, as `torch.softmax` or what `library.custom_op` returns, or its name. The decorated
    function gets the operator's arguments, with `ndim` and `shape` of tensors only. It returns pairs: placements of
    the outputs, and those of the inputs from which these follow, None for what is no tensor.
    """
    names = [_name_of(one) for one in (op if is_list_or_tuple(op) else [op])]

    def register(function: Stated) -> Stated:
        _stated.update(dict.fromkeys(names, function))
        return function

    return register


def _name_of(op: object) -> str:
    name: str = op if isinstance(op, str) else getattr(op, "_name", None) or getattr(op, "__name__", "")
    if name not in TABLE and "::" not in name:
        raise ArgumentError(f"register_sharding takes an operator of the table, but {op!r} is none")
    return name


def stated_strategies(op: OpDef, static: Kwargs, shapes: Sequence[Sizes], outputs: int) -> list[Strategy] | None:
    """What was stated of an operator, for tensors of these shapes; None if nothing was."""
    function = _stated.get(op.name)
    if function is None:
        return None
    rest = iter(shapes)
    arguments: list[object] = []
    is_tensor: list[bool] = []
    for param in op.params:
        entry = static[param.name]
        tensor = param.kind in TENSOR_KINDS and entry is not None
        is_tensor.append(tensor)
        arguments.append(ArgumentMeta(next(rest)) if tensor else entry)
    return [_strategy(op, outs, ins, is_tensor, outputs) for outs, ins in function(*arguments)]


def _strategy(
    op: OpDef, outs: Sequence[Placement], ins: Sequence[Placement | None], is_tensor: Sequence[bool], outputs: int
) -> Strategy:
    tensors: Placements = tuple(p for p in ins if p is not None)
    if len(outs) != outputs or len(tensors) != sum(is_tensor):
        raise PreconditionError(
            f"register_sharding: {op.name} has {outputs} outputs and {sum(is_tensor)} tensors as inputs, but got "
            f"placements of {len(outs)} and {len(tensors)}"
        )
    splits = any(p != WHOLE for p in (*outs, *tensors))
    return Strategy(tensors, tuple(outs), tuple(at for at, p in enumerate(tensors) if splits and p == WHOLE))
