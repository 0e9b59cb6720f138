"""The share of a dataset that one of several processes reads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft._tensor.generator import Generator
from weft.errors import ValueRangeError
from weft.utils.data._utils.draw import permutation
from weft.utils.data.sampler import Sampler

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import AnyDataset


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index, starting at `rank`, of an order that all processes share.

    The order is extended from its start until all shares have the same length; with `drop_last` it is cut instead. It
    depends on `seed` and the epoch: call `set_epoch` before each pass, or every pass has the same order.

    `num_replicas` and `rank` default to those of the default process group or, without a group, of the environment
    (`WORLD_SIZE`, `RANK`). `ValueError` if neither is there, and for a rank outside of the replicas.

    Batches of b indices in each of n processes are together the next b · n indices of the order, so they are the same
    for any n with the same b · n. `start` is the number of indices that a pass skips at the beginning of the order; it
    is 0 unless a `DataLoader` continues in the middle.
    """

    start = 0  # of the class, since samplers that PyTorch has saved have no such attribute

    def __init__(
        self,
        dataset: AnyDataset,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        group = _group.ask() if _group.ask else None
        if num_replicas is None:
            num_replicas = group[0] if group else _from_environment("WORLD_SIZE")
        if rank is None:
            rank = group[1] if group else _from_environment("RANK")
        if not 0 <= rank < num_replicas:
            raise ValueRangeError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        self.num_samples = self._share(len(dataset))
        self.total_size = self.num_samples * num_replicas

    def _share(self, count: int) -> int:
        """The number of indices of each process, out of `count`."""
        return count // self.num_replicas if self.drop_last else math.ceil(count / self.num_replicas)

    def _order(self) -> list[int]:
        """The order of the next pass, shared by all processes."""
        if self.shuffle:
            return permutation(len(self.dataset), Generator().manual_seed(self.seed + self.epoch))
        return list(range(len(self.dataset)))

    def __iter__(self) -> Iterator[int]:
        order = self._order()
        count = len(order)
        end = self.start + self._share(max(0, count - self.start)) * self.num_replicas
        return iter([order[at % count] for at in range(self.start + self.rank, end, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order of the next pass."""
        self.epoch = epoch


@dataclass
class _Group:
    """The function that gives size and rank of the default process group; None if `weft.distributed` is not in use."""

    ask: Callable[[], tuple[int, int] | None] | None = None


_group = _Group()


def ask_for_group(how: Callable[[], tuple[int, int] | None]) -> None:
    """Set the function that gives (size, rank) of the default process group, or None while there is no group."""
    _group.ask = how


def _from_environment(name: str) -> int:
    if name not in os.environ:
        raise ValueRangeError(
            "Default process group has not been initialized, please make sure to call init_process_group; or give "
            f"num_replicas and rank, or set {name} in the environment"
        )
    return int(os.environ[name])
