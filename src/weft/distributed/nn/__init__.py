"""Differentiable collectives, and modules on other workers."""

from weft._base.exports import on_first_use as _on_first_use
from weft.distributed.nn.functional import all_gather as all_gather
from weft.distributed.nn.functional import all_reduce as all_reduce
from weft.distributed.nn.functional import all_to_all as all_to_all
from weft.distributed.nn.functional import all_to_all_single as all_to_all_single
from weft.distributed.nn.functional import broadcast as broadcast
from weft.distributed.nn.functional import gather as gather
from weft.distributed.nn.functional import reduce as reduce
from weft.distributed.nn.functional import reduce_scatter as reduce_scatter
from weft.distributed.nn.functional import scatter as scatter

__getattr__, __dir__ = _on_first_use(__name__, {"weft.distributed.nn.api.remote_module": ("RemoteModule",)})
