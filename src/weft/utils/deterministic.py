"""What `use_deterministic_algorithms` does to memory that is not written: new tensors are never of such memory here."""

from __future__ import annotations

fill_uninitialized_memory = True
"""A flag without effect: `empty` gives zeros in any case."""
