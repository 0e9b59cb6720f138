"""A distributed sampler that starts in the middle of a dataset."""

from __future__ import annotations

from collections.abc import Sized

from weft._tensor.generator import Generator
from weft.errors import ValueRangeError
from weft.utils.data._utils.draw import permutation
from weft.utils.data.distributed import DistributedSampler


class ElasticDistributedSampler(DistributedSampler):
    """A `DistributedSampler` of the indices from `start_index` on, for jobs that continue in the middle of a dataset.

    The order is shuffled, depending only on the epoch. `ValueError` if no index is left.
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0
    ) -> None:
        super().__init__(dataset, num_replicas, rank)
        if start_index >= len(dataset):
            raise ValueRangeError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = self._share(len(dataset) - start_index)
        self.total_size = self.num_samples * self.num_replicas

    def _order(self) -> list[int]:
        drawn = permutation(len(self.dataset) - self.start_index, Generator().manual_seed(self.epoch))
        return [self.start_index + index for index in drawn]
