"""Functions composed of rows: importing this package registers every one."""

from importlib import import_module
from pathlib import Path

LOADED = tuple(
    import_module(f"{__name__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if not path.stem.startswith("_")
)
"""The modules of composites."""
