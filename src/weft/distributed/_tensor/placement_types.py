"""`weft.distributed.tensor.placement_types` under PyTorch's older path."""

from weft.distributed.tensor.placement_types import Partial as Partial
from weft.distributed.tensor.placement_types import Placement as Placement
from weft.distributed.tensor.placement_types import Replicate as Replicate
from weft.distributed.tensor.placement_types import Shard as Shard
