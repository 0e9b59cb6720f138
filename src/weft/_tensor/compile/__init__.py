"""`compile`: capturing functions and replaying them."""

from weft._tensor.compile.compiled import Compiled as Compiled
from weft._tensor.compile.compiled import compile as compile
from weft._tensor.compile.compiled import functions as functions
from weft._tensor.compile.stance import set_stance as set_stance
from weft._tensor.compile.structure import ByIdentity as ByIdentity
