"""Trees, under the import path that `fx` has for them."""

from weft.utils._pytree import tree_flatten as tree_flatten
from weft.utils._pytree import tree_map as tree_map
from weft.utils._pytree import tree_unflatten as tree_unflatten
