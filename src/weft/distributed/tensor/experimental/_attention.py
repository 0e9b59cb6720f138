"""Context parallelism, under PyTorch's import path."""

from weft.distributed.tensor._context_parallel import context_parallel as context_parallel
from weft.distributed.tensor._context_parallel import context_parallel_unshard as context_parallel_unshard
from weft.distributed.tensor._context_parallel import options as _cp_options  # noqa: F401  PyTorch's name of them
from weft.distributed.tensor._context_parallel import set_rotate_method as set_rotate_method
