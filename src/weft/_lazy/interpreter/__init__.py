"""An interpreter of jaxprs over NumPy, for the CPU: programs that run only a few times need not be compiled.

`prepare` turns a jaxpr into a list of steps once; calling the result executes them. The modules imported below fill a
table that maps the name of a primitive to a function that makes a NumPy function from an equation's parameters.
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
    "fourier",
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
