"""State dicts with whole tensors: collected from all ranks, or sent from one to all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft._base.dtype import DType
from weft._base.guards import is_list_or_tuple, is_mapping
from weft._base.state import using
from weft._base.types import PyTree, SavedState
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor
from weft.distributed._collectives import broadcast
from weft.distributed._objects import broadcast_object_list
from weft.distributed._world import get_rank, is_initialized
from weft.distributed.checkpoint._nested_dict import Path, flatten_state_dict, set_element
from weft.distributed.tensor import DTensor, distribute_tensor
from weft.errors import DistError


def collected(state: SavedState, *, full: bool, offload: bool) -> SavedState:
    """A state dict with whole tensors, or with tensors on the CPU; with both, an empty one on all ranks but the first.

    With `full`, all ranks must call it.
    """
    if not (full or offload):
        return state
    absent = full and offload and is_initialized() and get_rank() != 0

    def convert(tensor: Tensor) -> Tensor | None:
        if full and isinstance(tensor, DTensor):
            tensor = tensor.full_tensor()
        # Every rank takes part in gathering, but only the first keeps the result: the others would need memory for the
        # whole model.
        return None if absent else tensor.cpu() if offload else tensor

    with using(grad=False):
        result = _with_tensors(state, convert)
    return {} if absent else result


def _with_tensors(value: PyTree, convert: Callable[[Tensor], Tensor | None]) -> PyTree:
    """Nested dicts, lists and tuples with other tensors in them."""
    if isinstance(value, Tensor):
        return convert(value)
    if is_mapping(value):
        return {key: _with_tensors(entry, convert) for key, entry in value.items()}
    if is_list_or_tuple(value):
        return type(value)([_with_tensors(entry, convert) for entry in value])
    return value


def placed_as(target: object, whole: Tensor) -> Tensor:
    """A whole tensor, which all ranks have, distributed as `target` if that is a DTensor of its size."""
    if not isinstance(target, DTensor) or isinstance(whole, DTensor) or whole.shape != target.shape:
        return whole
    return distribute_tensor(whole.detach(), target.device_mesh, target.placements, src_data_rank=None)


@dataclass(frozen=True)
class _Sent:
    """A tensor that is sent separately; `parted` if rank 0 has a part of it only."""

    shape: tuple[int, ...]
    dtype: DType
    parted: bool


def broadcast_state(state: SavedState, current: SavedState) -> SavedState:
    """Rank 0's state dict, of whole tensors, on all ranks. They are placed as those of `current`, this rank's own.

    Each tensor is sent by itself, so that no rank but the first has more than one that is whole. If rank 0 has
    something else than whole tensors, all ranks raise.
    """
    source, paths = flatten_state_dict(state) if get_rank() == 0 else ({}, {})
    message: list[tuple[SavedState, dict[str, Path]]] = [
        ({key: _described(value) for key, value in source.items()}, paths)
    ]
    broadcast_object_list(message, src=0)
    entries, paths = message[0]
    for key, entry in entries.items():
        # All ranks look at the same message, so all raise; an error on rank 0 alone would leave the others waiting.
        if isinstance(entry, _Sent) and entry.parted:
            raise DistError(f"broadcast_from_rank0: rank 0 has a part of {key!r}; give it the whole tensor")
    targets, _ = flatten_state_dict(current)
    result: SavedState = {}
    with using(grad=False):
        for key, entry in entries.items():
            value = _received(source.get(key), entry, targets.get(key)) if isinstance(entry, _Sent) else entry
            set_element(result, paths[key], value)
    return result


def _described(value: object) -> object:
    return _Sent(tuple(value.shape), value.dtype, isinstance(value, DTensor)) if isinstance(value, Tensor) else value


def _received(source: Tensor | None, entry: _Sent, target: object) -> Tensor:
    device = target.device if isinstance(target, Tensor) else "cpu"
    whole = empty(entry.shape, dtype=entry.dtype, device=device) if source is None else source.to(device).clone()
    broadcast(whole, 0)
    return placed_as(target, whole)
