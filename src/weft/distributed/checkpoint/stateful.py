"""Objects that give and take their state."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from weft._base.types import SavedState


@runtime_checkable
class Stateful(Protocol):
    """An object whose `state_dict()` is saved in its place, and loaded again by its `load_state_dict()`.

    Modules, optimizers and learning rate schedules are such objects. When a checkpoint is loaded, `state_dict()` is
    called first, for the tensors to load into.
    """

    def state_dict(self) -> SavedState:
        """The state, as a dict."""
        ...

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Take on a state."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
