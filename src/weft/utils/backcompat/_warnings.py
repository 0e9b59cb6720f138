"""The switches of warnings that no operator gives any more: PyTorch, too, only remembers them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Warning:
    """A switch, off by default."""

    enabled: bool = False

    def set_enabled(self, value: bool) -> None:
        """Set the switch."""
        self.enabled = value

    def get_enabled(self) -> bool:
        """Whether the switch is on."""
        return self.enabled


# no cell: only texts and reports depend on it
broadcast_warning = Warning()
# no cell: only texts and reports depend on it
keepdim_warning = Warning()
