"""Access to the operator table for users' operators.

A dimension rule gives each dim of the inputs and outputs a letter: `pointwise` broadcasts, `reduces` drops the dims in
`dim`, `along` works along `dim`, and `einsum("i k, k j -> i j")` states the letters. A rule may also be a function of
(shapes of the tensor inputs, the other arguments by name) that returns `Factors`.
"""

from weft._interop.custom import CustomOp as CustomOp
from weft._interop.custom import custom_op as custom_op
from weft.ops._dims import Factors as Factors
from weft.ops._dims import along as along
from weft.ops._dims import einsum as einsum
from weft.ops._dims import pointwise as pointwise
from weft.ops._dims import reduces as reduces
from weft.ops._table import Cast as Cast
from weft.ops._table import PerDevice as PerDevice
