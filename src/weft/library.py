"""Users' operators: functions with a name, for devices, derivatives and transforms.

A dimension rule gives each dim of the inputs and outputs a letter: `pointwise` broadcasts, `reduces` drops the dims in
`dim`, `along` works along `dim`, and `einsum("i k, k j -> i j")` states the letters. A rule may also be a function of
(shapes of the tensor inputs, the other arguments by name) that returns `Factors`.
"""

from weft._interop.custom import CustomOp as CustomOp
from weft._interop.custom import custom_op as custom_op
from weft._interop.libraries import Library as Library
from weft._interop.libraries import _scoped_library as _scoped_library
from weft._interop.libraries import define as define
from weft._interop.libraries import fallthrough_kernel as fallthrough_kernel
from weft._interop.libraries import get_ctx as get_ctx
from weft._interop.libraries import get_kernel as get_kernel
from weft._interop.libraries import impl as impl
from weft._interop.libraries import impl_abstract as impl_abstract
from weft._interop.libraries import register_autocast as register_autocast
from weft._interop.libraries import register_autograd as register_autograd
from weft._interop.libraries import register_fake as register_fake
from weft._interop.libraries import register_kernel as register_kernel
from weft._interop.libraries import register_torch_dispatch as register_torch_dispatch
from weft._interop.libraries import register_vmap as register_vmap
from weft._interop.libraries import triton_op as triton_op
from weft._interop.libraries import wrap_triton as wrap_triton
from weft._interop.opcheck import opcheck as opcheck
from weft._interop.schema import infer_schema as infer_schema
from weft.ops._autocast import Cast as Cast
from weft.ops._autocast import PerDevice as PerDevice
from weft.ops._dims import Factors as Factors
from weft.ops._dims import along as along
from weft.ops._dims import einsum as einsum
from weft.ops._dims import pointwise as pointwise
from weft.ops._dims import reduces as reduces
