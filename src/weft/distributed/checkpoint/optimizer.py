"""The state of an optimizer from a checkpoint that holds more."""

from __future__ import annotations

from weft._base.types import SavedState
from weft.distributed.checkpoint.default_planner import EmptyStateDictLoadPlanner
from weft.distributed.checkpoint.planner import LoadPlanner
from weft.distributed.checkpoint.state_dict_loader import _load_state_dict
from weft.distributed.checkpoint.storage import StorageReader


def load_sharded_optimizer_state_dict(
    model_state_dict: SavedState, optimizer_key: str, storage_reader: StorageReader, planner: LoadPlanner | None = None
) -> SavedState:
    """What a checkpoint holds under `optimizer_key`, in a dict under this key; each rank has all of it.

    `FullyShardedDataParallel.optim_state_dict_to_load` then gives each rank its part. `model_state_dict` is not needed.
    """
    del model_state_dict
    state: SavedState = {}
    default = EmptyStateDictLoadPlanner(lambda key: key == optimizer_key or key.startswith(f"{optimizer_key}."))
    _load_state_dict(state, storage_reader, planner=planner or default)
    return state
