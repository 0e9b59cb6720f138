"""Tensors split over the devices of one process, usually imported as `xs`."""

from __future__ import annotations

from weft.xla._mesh import HybridMesh as HybridMesh
from weft.xla._mesh import Mesh as Mesh
from weft.xla._mesh import get_1d_mesh as get_1d_mesh
from weft.xla._mesh import get_global_mesh as get_global_mesh
from weft.xla._mesh import set_global_mesh as set_global_mesh
from weft.xla._sharding import ShardingSpec as ShardingSpec
from weft.xla._sharding import clear_sharding as clear_sharding
from weft.xla._sharding import mark_sharding as mark_sharding
