"""Switches of how modules are converted."""

from __future__ import annotations

from weft._base.cell import Cell

_OVERWRITE = Cell("whether conversions give modules new parameters", False)
_SWAP = Cell("whether parameters remain the same objects in conversions", False)


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Let `Module.to` and its kin give a module new parameters, instead of changing those that it has."""
    _OVERWRITE.set(value)


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether conversions give a module new parameters."""
    return _OVERWRITE.get()


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Let parameters remain the same objects in conversions, whatever `set_overwrite_…` says.

    They do so by default, with any device and type, so this matters only besides the other switch.
    """
    _SWAP.set(value)


def get_swap_module_params_on_conversion() -> bool:
    """Whether parameters remain the same objects in conversions, whatever `set_overwrite_…` says."""
    return _SWAP.get()
