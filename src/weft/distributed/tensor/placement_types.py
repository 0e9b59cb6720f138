"""Placements, under the path that PyTorch has for them."""

from weft.distributed.tensor._placements import Partial as Partial
from weft.distributed.tensor._placements import Placement as Placement
from weft.distributed.tensor._placements import Replicate as Replicate
from weft.distributed.tensor._placements import Shard as Shard
from weft.distributed.tensor._placements import _StridedShard as _StridedShard
