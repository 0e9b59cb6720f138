"""The namespaces of users' operators, which are attributes of `weft.ops`."""

from __future__ import annotations

from typing import Any

# no cell: operators that are defined anew change a cell (`_interop/operators.py`)
NAMESPACES: dict[str, Any] = {}
"""What is found under `weft.ops.<name>`."""
