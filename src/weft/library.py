"""The door to the operator table: users' operators, and what their rows are made of.

A dimension rule gives each dim of the inputs and outputs a letter: `pointwise` broadcasts, `reduces` drops the dims in
`dim`, `along` works along `dim`, `einsum("i k, k j -> i j")` spells them out. A function of (shapes of the tensor
inputs, the other arguments by name) that returns `Factors` is a rule as well.
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
