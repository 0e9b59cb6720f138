"""The operator table: importing this package registers every row."""

from importlib import import_module
from pathlib import Path

from weft._base.types import AttributeValue
from weft.ops._aten import aten as aten
from weft.ops._libraries import load_library as load_library
from weft.ops._libraries import loaded_libraries as loaded_libraries
from weft.ops._namespaces import NAMESPACES

LOADED = tuple(
    import_module(f"{__name__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if not path.stem.startswith("_")
)
"""The modules that hold the rows."""


def __getattr__(name: str) -> AttributeValue:
    try:
        return NAMESPACES[name]
    except KeyError:
        raise AttributeError(f"'_OpNamespace' {name!r} does not exist: no operators were defined in it") from None
