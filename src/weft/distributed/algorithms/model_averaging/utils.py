"""Averages of parameters over ranks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from weft._base.guards import is_dict
from weft._base.state import using
from weft._tensor.codegen import op as rows
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed._grad_bucket import split_like
from weft.distributed._reduce_op import ReduceOp
from weft.distributed._world import member_of
from weft.errors import ArgumentError

if TYPE_CHECKING:
    from weft.distributed._group import ProcessGroup


def average_parameters(params: Iterable[Tensor], process_group: ProcessGroup) -> None:
    """Replace parameters by their averages over a group (None: the default one), with one message for each type."""
    group = member_of(process_group, "average_parameters")
    if group is None:
        return
    by_type: dict[Hashable, list[Tensor]] = {}
    for parameter in params:
        by_type.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    with using(grad=False):
        for chosen in by_type.values():
            flat = rows.cat([rows.reshape(p.detach(), (-1,)) for p in chosen])
            _collectives.all_reduce(flat, ReduceOp.AVG, group)
            for parameter, part in zip(chosen, split_like(flat, chosen), strict=True):
                parameter.copy_(part)


def get_params_to_average(params: Iterable[object]) -> list[Tensor]:
    """The parameters that have a gradient, from a model's parameters or an optimizer's groups."""
    parameters: list[Tensor] = []
    for entry in params:
        if isinstance(entry, Tensor):
            parameters.append(entry)
        elif is_dict(entry):
            parameters += entry["params"]
        else:
            raise ArgumentError(f"Parameter input of type {type(entry)} is not supported")
    return [parameter for parameter in parameters if parameter.grad is not None]


def average_parameters_or_parameter_groups(params: Iterable[object], process_group: ProcessGroup) -> None:
    """`average_parameters` of the parameters that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)
