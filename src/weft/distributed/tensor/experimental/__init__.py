"""Functions on parts of distributed tensors, shardings of operators that users state, and context parallelism."""

from weft.distributed.tensor._context_parallel import context_parallel as context_parallel
from weft.distributed.tensor._local_map import local_map as local_map
from weft.distributed.tensor._plan import implicit_replication as implicit_replication
from weft.distributed.tensor._register import register_sharding as register_sharding
