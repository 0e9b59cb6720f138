"""The share of a dataset that one process of several reads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

from weft._tensor.generator import Generator
from weft.errors import ValueRangeError
from weft.utils.data._utils.draw import permutation
from weft.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index, from `rank` on, of an order that all processes share.

    The order is repeated from its start until all shares are equally long; with `drop_last`, cut instead. It depends
    on `seed` and the epoch: call `set_epoch` before each pass, or every pass has the same one. `num_replicas` and
    `rank` come from the environment (`WORLD_SIZE`, `RANK`) where they are not given; `ValueError` where they are
    nowhere, and for a rank outside of the replicas.
    """

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        num_replicas = _from_environment("WORLD_SIZE") if num_replicas is None else num_replicas
        rank = _from_environment("RANK") if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueRangeError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = list(range(count))
        if self.shuffle:
            order = permutation(count, Generator().manual_seed(self.seed + self.epoch))
        return iter([order[at % count] for at in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass."""
        self.epoch = epoch


def _from_environment(name: str) -> int:
    if name not in os.environ:
        raise ValueRangeError(
            "Default process group has not been initialized, please make sure to call init_process_group; or give "
            f"num_replicas and rank, or set {name} in the environment"
        )
    return int(os.environ[name])
