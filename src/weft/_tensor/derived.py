"""The part of a tensor that is derived from the operator table: `assemble` fills it, its stub is generated."""

from __future__ import annotations


class Derived:
    """Methods, properties and special methods of every row and composite."""
