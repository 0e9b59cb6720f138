"""An interpreter of jaxprs over NumPy, for the CPU: what runs a few times is computed without compiling it.

`prepare` turns a jaxpr into a list of steps once; calling the result runs them. The primitives are a table, filled by
the modules below, from a primitive's name to what makes a NumPy function of an equation's parameters.
"""

from importlib import import_module

from weft._lazy.interpreter.costs import Costs as Costs
from weft._lazy.interpreter.evaluate import Interpreted as Interpreted
from weft._lazy.interpreter.evaluate import missing as missing
from weft._lazy.interpreter.evaluate import prepare as prepare
from weft._lazy.interpreter.evaluate import quiet as quiet

for _module in (
    "control",
    "convert",
    "elementwise",
    "error",
    "indexing",
    "linear",
    "products",
    "random",
    "reduction",
    "shape",
    "sorting",
    "special",
    "windows",
):
    import_module(f"{__name__}.{_module}")
