"""Reading data in jobs whose number of workers changes."""

from weft.distributed.elastic.utils.data.cycling_iterator import CyclingIterator as CyclingIterator
from weft.distributed.elastic.utils.data.elastic_distributed_sampler import (
    ElasticDistributedSampler as ElasticDistributedSampler,
)
