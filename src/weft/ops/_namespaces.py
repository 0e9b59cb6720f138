"""The namespaces of users' operators, which are attributes of `weft.ops`."""

from __future__ import annotations

from typing import Any

NAMESPACES: dict[str, Any] = {}
"""What is found under `weft.ops.<name>`."""
