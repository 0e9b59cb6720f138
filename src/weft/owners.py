"""Kinds of tensors that programs define: their types refer to an owner, which takes over the calls on them.

Derive from `Encoding` for tensors that consist of others, and from `TensorOwner` for tensors whose elements are an
array that is to be treated in a way of its own.
"""

from weft._dispatch import apply as apply
from weft._lazy.owner import Stored as Stored
from weft._lazy.retyped import with_owner as with_owner
from weft._tensor.composed import Encoding as Encoding
from weft._tensor.composed import composed as composed
from weft._tensor.composed import encoding_of as encoding_of
from weft._tensor.composed import on_whole as on_whole
from weft._tensor.composed import rule as rule
from weft._tensor.copying import set_restorer as set_restorer
from weft._tensor.tensor import TensorOwner as TensorOwner
from weft._tensor.tensor import operand as operand
from weft._tensor.tensor import wrap as wrap
