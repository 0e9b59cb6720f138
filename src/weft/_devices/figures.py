"""Figures of a device's memory, in bytes, under PyTorch's names."""

from __future__ import annotations

import os

from weft._base.device import device
from weft._lazy.ledger import ledger_of, xlas_figures
from weft._lazy.living import size_text
from weft._lazy.runtime import jax_device, memory_of

CURRENT, PEAK = "allocated_bytes.all.current", "allocated_bytes.all.peak"
RESERVED, MOST_RESERVED = "reserved_bytes.all.current", "reserved_bytes.all.peak"

_NAMES: dict[str, str] = {
    "bytes_in_use": CURRENT,
    "peak_bytes_in_use": PEAK,
    "pool_bytes": RESERVED,
    "peak_pool_bytes": MOST_RESERVED,
    "num_allocs": "allocation.all.allocated",
}
"""PyTorch's names of XLA's figures."""

_TITLES = {CURRENT: "allocated", PEAK: "allocated, peak", RESERVED: "reserved", MOST_RESERVED: "reserved, peak"}


def figures_of(target: device) -> dict[str, int]:
    """What XLA tells, with the peak since the last `reset_peak`; for CPUs, what the arrays of tensors take."""
    ledger = ledger_of(target)
    figures = {_NAMES.get(name, name): value for name, value in xlas_figures(target).items()}
    figures |= {CURRENT: ledger.current(), PEAK: ledger.peak}
    figures.setdefault(RESERVED, figures[CURRENT])
    figures.setdefault(MOST_RESERVED, figures[PEAK])
    return figures


def reset_peak(target: device) -> None:
    """Let the peak of a device be what is allocated now."""
    ledger_of(target).reset()


def free_and_total(target: device) -> tuple[int, int]:
    """The bytes that are free on a device, and those that it has; on the CPU, what the operating system has free."""
    if target.type == "cpu":
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
    used, total = memory_of(jax_device(target))
    return total - used, total


def summary(target: device, abbreviated: bool = False) -> str:
    """The figures as a table; `abbreviated` leaves out those that only XLA has."""
    figures = figures_of(target)
    rows = [(title, figures[name]) for name, title in _TITLES.items()]
    rows += [] if abbreviated else [(name, value) for name, value in figures.items() if name not in _TITLES]
    width = max([len(name) for name, _ in rows])
    lines = [f"{name:<{width}}  {value:>19,}  {size_text(value):>12}" for name, value in rows]
    return "\n".join([f"Memory of {target}, in bytes", *lines])
