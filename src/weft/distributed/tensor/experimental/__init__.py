"""Functions on parts of distributed tensors, and shardings of operators that users state."""

from weft.distributed.tensor._local_map import local_map as local_map
from weft.distributed.tensor._register import register_sharding as register_sharding
