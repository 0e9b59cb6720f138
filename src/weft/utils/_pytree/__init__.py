"""Trees of nested containers, under the path by which PyTorch's programs import them.

Containers are tuples, lists, dicts, named tuples, deques, and types that are registered; None is a leaf.
"""

from weft.utils._pytree.functions import _broadcast_to_and_flatten as _broadcast_to_and_flatten
from weft.utils._pytree.functions import arg_tree_leaves as arg_tree_leaves
from weft.utils._pytree.functions import map_only as map_only
from weft.utils._pytree.functions import tree_all as tree_all
from weft.utils._pytree.functions import tree_all_only as tree_all_only
from weft.utils._pytree.functions import tree_any as tree_any
from weft.utils._pytree.functions import tree_any_only as tree_any_only
from weft.utils._pytree.functions import tree_flatten as tree_flatten
from weft.utils._pytree.functions import tree_flatten_with_path as tree_flatten_with_path
from weft.utils._pytree.functions import tree_is_leaf as tree_is_leaf
from weft.utils._pytree.functions import tree_iter as tree_iter
from weft.utils._pytree.functions import tree_leaves as tree_leaves
from weft.utils._pytree.functions import tree_leaves_with_path as tree_leaves_with_path
from weft.utils._pytree.functions import tree_map as tree_map
from weft.utils._pytree.functions import tree_map_ as tree_map_
from weft.utils._pytree.functions import tree_map_only as tree_map_only
from weft.utils._pytree.functions import tree_map_only_ as tree_map_only_
from weft.utils._pytree.functions import tree_map_with_path as tree_map_with_path
from weft.utils._pytree.functions import tree_structure as tree_structure
from weft.utils._pytree.nodes import BUILTIN_TYPES as BUILTIN_TYPES
from weft.utils._pytree.nodes import STANDARD_DICT_TYPES as STANDARD_DICT_TYPES
from weft.utils._pytree.nodes import SUPPORTED_NODES as SUPPORTED_NODES
from weft.utils._pytree.nodes import ConstantNode as ConstantNode
from weft.utils._pytree.nodes import Context as Context
from weft.utils._pytree.nodes import FlattenFn as FlattenFn
from weft.utils._pytree.nodes import GetAttrKey as GetAttrKey
from weft.utils._pytree.nodes import KeyPath as KeyPath
from weft.utils._pytree.nodes import MappingKey as MappingKey
from weft.utils._pytree.nodes import NodeDef as NodeDef
from weft.utils._pytree.nodes import PyTree as PyTree
from weft.utils._pytree.nodes import SequenceKey as SequenceKey
from weft.utils._pytree.nodes import UnflattenFn as UnflattenFn
from weft.utils._pytree.nodes import _dict_flatten as _dict_flatten
from weft.utils._pytree.nodes import _dict_flatten_with_keys as _dict_flatten_with_keys
from weft.utils._pytree.nodes import _dict_unflatten as _dict_unflatten
from weft.utils._pytree.nodes import _get_node_type as _get_node_type
from weft.utils._pytree.nodes import _register_pytree_node as _register_pytree_node
from weft.utils._pytree.nodes import is_namedtuple as is_namedtuple
from weft.utils._pytree.nodes import is_namedtuple_class as is_namedtuple_class
from weft.utils._pytree.nodes import is_namedtuple_instance as is_namedtuple_instance
from weft.utils._pytree.nodes import key_get as key_get
from weft.utils._pytree.nodes import keystr as keystr
from weft.utils._pytree.nodes import register_constant as register_constant
from weft.utils._pytree.nodes import register_dataclass as register_dataclass
from weft.utils._pytree.nodes import register_pytree_node as register_pytree_node
from weft.utils._pytree.spec import LeafSpec as LeafSpec
from weft.utils._pytree.spec import PyTreeSpec as PyTreeSpec
from weft.utils._pytree.spec import TreeSpec as TreeSpec
from weft.utils._pytree.spec import tree_unflatten as tree_unflatten
from weft.utils._pytree.spec import treespec_dict as treespec_dict
from weft.utils._pytree.spec import treespec_leaf as treespec_leaf
from weft.utils._pytree.spec import treespec_pprint as treespec_pprint
from weft.utils._pytree.spec import treespec_tuple as treespec_tuple
