"""`weft.distributed.tensor` under PyTorch's older path."""

from weft.distributed.device_mesh import DeviceMesh as DeviceMesh
from weft.distributed.device_mesh import init_device_mesh as init_device_mesh
from weft.distributed.tensor import DTensor as DTensor
from weft.distributed.tensor import Partial as Partial
from weft.distributed.tensor import Placement as Placement
from weft.distributed.tensor import Replicate as Replicate
from weft.distributed.tensor import Shard as Shard
from weft.distributed.tensor import distribute_module as distribute_module
from weft.distributed.tensor import distribute_tensor as distribute_tensor
from weft.distributed.tensor import empty as empty
from weft.distributed.tensor import full as full
from weft.distributed.tensor import ones as ones
from weft.distributed.tensor import rand as rand
from weft.distributed.tensor import randn as randn
from weft.distributed.tensor import zeros as zeros
