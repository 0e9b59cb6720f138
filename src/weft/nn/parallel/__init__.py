"""Data parallelism. The parts that need `weft.distributed` are imported on first use."""

from weft._base.exports import on_first_use as _on_first_use
from weft._import_paths.finder import serve_below as _serve_below
from weft.nn.parallel.data_parallel import DataParallel as DataParallel
from weft.nn.parallel.data_parallel import data_parallel as data_parallel
from weft.nn.parallel.scatter_gather import gather as gather
from weft.nn.parallel.scatter_gather import parallel_apply as parallel_apply
from weft.nn.parallel.scatter_gather import replicate as replicate
from weft.nn.parallel.scatter_gather import scatter as scatter

__getattr__, __dir__ = _on_first_use(__name__, {"weft.distributed._ddp": ("DistributedDataParallel",)})
_serve_below(__name__)
