"""Distributed tensors: tensors of which each process of a device mesh has a part."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributed.device_mesh import DeviceMesh as DeviceMesh
from weft.distributed.device_mesh import init_device_mesh as init_device_mesh
from weft.distributed.tensor import _plan as _plan  # calls on sharded values go there
from weft.distributed.tensor._api import distribute_module as distribute_module
from weft.distributed.tensor._api import distribute_tensor as distribute_tensor
from weft.distributed.tensor._api import empty as empty
from weft.distributed.tensor._api import full as full
from weft.distributed.tensor._api import ones as ones
from weft.distributed.tensor._api import rand as rand
from weft.distributed.tensor._api import randn as randn
from weft.distributed.tensor._api import zeros as zeros
from weft.distributed.tensor._dtensor import DTensor as DTensor
from weft.distributed.tensor._placements import Partial as Partial
from weft.distributed.tensor._placements import Placement as Placement
from weft.distributed.tensor._placements import Replicate as Replicate
from weft.distributed.tensor._placements import Shard as Shard

_serve_below(__name__)
