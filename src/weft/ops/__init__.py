"""The operator table: importing this package registers every row."""

from importlib import import_module
from pathlib import Path

from weft.ops._libraries import load_library as load_library

LOADED = tuple(
    import_module(f"{__name__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if not path.stem.startswith("_")
)
"""The modules that hold the rows."""
