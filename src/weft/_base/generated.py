"""Source that is generated and compiled, such as that of public functions."""

from __future__ import annotations

import linecache
from typing import Any


def execute(source: str, name: str, scope: dict[str, Any]) -> None:
    """Execute generated source in a scope. Tracebacks and debuggers show its lines, under the file name `<weft name>`.

    Entries that `linecache` would fill on demand are of no use: Python looks for no source under names in brackets.
    """
    filename = f"<weft {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)
