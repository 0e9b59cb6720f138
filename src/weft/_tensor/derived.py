"""The methods of tensors that are derived from the operator table. `assemble` adds them; the stub is generated."""

from __future__ import annotations


class Derived:
    """Methods, properties and special methods of every row and composite."""
