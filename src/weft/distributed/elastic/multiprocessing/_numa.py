"""PyTorch's options to bind workers to NUMA nodes, which are refused."""

from __future__ import annotations

from weft.errors import OptionError


def refuse_numa(options: object) -> None:
    """Refuse options other than None."""
    if options is not None:
        raise OptionError(
            f"workers are not bound to NUMA nodes here, got numa_options={options!r}; pass None, and "
            "start the launcher or its workers by numactl"
        )
