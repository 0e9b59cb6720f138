"""Dividing the parameters of modules among ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from weft.distributed.fsdp._data_parallel import DataParallel
from weft.distributed.fsdp._group import ParameterGroup
from weft.distributed.fsdp._parameter import PlacementFunction, ShardedParameter, require_parameter
from weft.distributed.fsdp._policies import MixedPrecisionPolicy
from weft.distributed.fsdp._state import ShardState, state_of
from weft.errors import ValueRangeError
from weft.nn import Module, Parameter


def shard(
    modules: Sequence[Module],
    ranks: DataParallel,
    policy: MixedPrecisionPolicy,
    reshards: bool | int | None,
    *,
    placement: PlacementFunction | None = None,
    ignored: Collection[Parameter] = (),
) -> ShardState:
    """Shard all parameters below some modules that were not sharded before, as one group; nothing changes if one fails.

    `reshards` is `reshard_after_forward`; None means yes, except for the outermost module.
    """
    parameters = _sharded_parameters(modules, ranks, placement, ignored)
    groups: list[ParameterGroup] = []
    if parameters:
        groups.append(ParameterGroup(parameters, ranks, policy))
        groups[0].reshards_after_forward = True if reshards is None else reshards
    state = ShardState(modules, groups, policy, auto=reshards is None)
    for module in modules:
        module.__dict__["_fsdp_state"] = state
    return state


def _sharded_parameters(
    modules: Sequence[Module], ranks: DataParallel, placement: PlacementFunction | None, ignored: Collection[Parameter]
) -> list[ShardedParameter]:
    """The parameters of a group, sharded."""
    owners: dict[Parameter, list[tuple[Module, str]]] = {}
    for owner in _managed(modules):
        for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False):
            if parameter in ignored:
                continue
            require_parameter(name, parameter)
            if hasattr(parameter, "_is_fully_sharded"):
                raise ValueRangeError(
                    f"Parameter '{name}' is shared with a parameter already managed by another FSDP group. For "
                    "shared/tied parameters, use fully_shard([module_a, module_b]) to place them in the same FSDP "
                    "group. To shard a module and one that holds it, shard the inner one first."
                )
            owners.setdefault(parameter, []).append((owner, name))
    shards = {parameter: placement(parameter) if placement is not None else None for parameter in owners}
    result = [ShardedParameter(p, of, ranks, shards[p]) for p, of in owners.items()]
    for parameter, sharded in zip(owners, result, strict=True):
        for one in (parameter, sharded.sharded):
            one._is_fully_sharded = True  # pyright: ignore[reportAttributeAccessIssue]  a mark
        sharded.install()
    return result


def _managed(modules: Iterable[Module]) -> list[Module]:
    """The modules and those below them, without what was sharded by itself."""
    managed: dict[Module, None] = {}

    def visit(module: Module) -> None:
        managed[module] = None
        for child in module.children():
            if child not in managed and state_of(child) is None:
                visit(child)

    for module in modules:
        visit(module)
    return list(managed)
