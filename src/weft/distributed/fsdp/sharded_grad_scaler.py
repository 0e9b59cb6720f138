"""Loss scaling beside fully sharded parameters."""

from __future__ import annotations

from weft.amp import GradScaler
from weft.distributed._world import AnyGroup


class ShardedGradScaler(GradScaler):
    """`amp.GradScaler`: the gradients of sharded parameters are distributed tensors, so all ranks skip the same steps.

    `process_group` is accepted for compatibility: the gradients know their mesh.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: AnyGroup = None,
    ) -> None:
        del process_group
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
