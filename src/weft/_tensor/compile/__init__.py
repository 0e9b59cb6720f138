"""`compile`: capturing functions and replaying them."""

from weft._tensor.compile.compiled import Compiled as Compiled
from weft._tensor.compile.compiled import compile as compile
from weft._tensor.compile.structure import ByIdentity as ByIdentity
