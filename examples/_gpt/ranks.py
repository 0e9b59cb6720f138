"""The processes that train together: one, unless a launcher has started several."""

from __future__ import annotations

import os
from dataclasses import dataclass

import weft as torch
import weft.distributed as dist
from weft import nn
from weft.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    size: int = 1
    restarts: int = 0  # how often the launcher has restarted them

    @classmethod
    def joined(cls) -> Ranks:
        """Join the process group if `weft run` has started this process."""
        if not dist.is_torchelastic_launched():
            return cls()
        dist.init_process_group()
        return cls(dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"]))

    def replica(self, model: nn.Module) -> nn.Module:
        """The model to train: its backward pass averages gradients over all processes."""
        return DistributedDataParallel(model) if self.size > 1 else model

    def mean(self, *values: float | torch.Tensor) -> list[float]:
        """The means of numbers over all processes, equal on each to the last bit."""
        mine = torch.tensor([float(value) for value in values])
        if self.size > 1:
            dist.all_reduce(mine, dist.ReduceOp.AVG)
        return mine.tolist()

    def processes(self) -> list[int]:
        """The process ids of all ranks."""
        numbers = [os.getpid()] * self.size
        if self.size > 1:
            dist.all_gather_object(numbers, os.getpid())
        return numbers
