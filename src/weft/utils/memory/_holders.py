"""What keeps arrays in memory: modules, gradients, optimizers, the graph, or the program's own tensors."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from weft._base.device import DeviceLike
from weft._lazy.living import blocks, living_values
from weft._lazy.value import Value, is_taped
from weft._tensor.base import value_of
from weft._tensor.tensor import Tensor
from weft.nn import Module
from weft.optim import Optimizer
from weft.utils.memory._figures import target_of

KINDS = ("parameter", "buffer", "gradient", "optimizer state", "tensor", "saved for backward", "other")
"""What may keep an array, in the order in which it is asked for."""


@dataclass(frozen=True)
class Allocation:
    """An array in memory.

    nbytes    its size
    type      the element type and the shape of the first value that has it, such as "float32[2, 3]"
    device    where it is
    site      `file:line` of the program that made it, or "" if lines were not recorded then
    operator  what made it, or "" for what the program gave
    kind      what keeps it, one of "parameter", "buffer", "gradient", "optimizer state", "tensor" (of the program),
              "saved for backward", "other"
    name      how that is called: "Net.fc.weight", "grad of Net.fc.weight", "exp_avg of Net.fc.weight", the operator
              that has saved it; or ""
    """

    nbytes: int
    type: str
    device: str
    site: str
    operator: str
    kind: str
    name: str


def allocations(device: DeviceLike | None = None) -> list[Allocation]:
    """The arrays of this process that are alive on a device, the largest first.

    A value that was recorded and is not computed yet has no array. Arrays that jax's own programs keep, and the
    temporary ones of a program while it runs, are not among them.
    """
    target = target_of(device)
    values = [value for value in living_values() if value.aval.device == target]
    holders = _holders()
    entries: list[Allocation] = []
    for block in blocks(values):
        held = [holders[id(value)] for value in block.values if id(value) in holders]
        kind, name = min(held, key=lambda holder: KINDS.index(holder[0]), default=("other", ""))
        first = block.values[0]
        entries.append(Allocation(block.nbytes, repr(first.aval), str(target), block.site, block.operator, kind, name))
    return entries


def _holders() -> dict[int, tuple[str, str]]:
    """What keeps values: (kind, name) by the identity of the value."""
    holders: dict[int, tuple[str, str]] = {}
    tensors, modules, optimizers, graph = _objects()
    for module in _roots(modules):
        root = type(module).__name__
        for path, part in module.named_modules(prefix=root):
            for kind, own in (("parameter", part._parameters), ("buffer", part._buffers)):
                for name, tensor in own.items():
                    if tensor is not None:
                        holders.setdefault(id(_value_of(tensor)), (kind, f"{path}.{name}"))
    for tensor in tensors:
        grad = None if tensor._role is None else tensor._role.grad
        if isinstance(grad, Tensor):
            name = holders.get(id(_value_of(tensor)), ("", "a tensor"))[1]
            holders.setdefault(id(_value_of(grad)), ("gradient", f"grad of {name}"))
    for optimizer in optimizers:
        for param, state in optimizer.state.items():
            name = holders.get(id(_value_of(param)), ("", type(optimizer).__name__))[1]
            for key, entry in _tensors_in(state):
                holders.setdefault(id(_value_of(entry)), ("optimizer state", f"{key} of {name}"))
    for tensor in tensors:
        holders.setdefault(id(_value_of(tensor)), ("tensor", ""))
    for value in graph:
        name = "" if value.origin is None else value.origin.signature.name
        for saved in (*value.inputs, *value.extras):
            holders.setdefault(id(saved), ("saved for backward", name))
    holders.pop(id(None), None)
    return holders


def _objects() -> tuple[list[Tensor], list[Module], list[Optimizer], list[Value]]:
    """The tensors, modules and optimizers of the process, and the values whose applications may be differentiated."""
    tensors: list[Tensor] = []
    modules: list[Module] = []
    optimizers: list[Optimizer] = []
    graph: list[Value] = []
    for thing in gc.get_objects():
        kind = type(thing)  # `isinstance` asks the object, and proxies may run anything then
        if kind is Value:
            if thing.origin is not None and is_taped(thing):
                graph.append(thing)
        elif issubclass(kind, Tensor):
            tensors.append(thing)
        elif issubclass(kind, Module):
            modules.append(thing)
        elif issubclass(kind, Optimizer):
            optimizers.append(thing)
    return tensors, modules, optimizers, graph


def _roots(modules: Iterable[Module]) -> list[Module]:
    """The modules that are no part of another one."""
    every = [module for module in modules if "_modules" in vars(module)]
    parts = {id(child) for module in every for child in module._modules.values()}
    return [module for module in every if id(module) not in parts]


def _value_of(tensor: object) -> Value | None:
    """The value of a tensor; None for a view that has to be computed anew, and for what is no tensor."""
    return value_of(tensor) if isinstance(tensor, Tensor) else None


def _tensors_in(state: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, dict):
        yield from ((str(key), entry) for key, entry in state.items() if isinstance(entry, Tensor))
