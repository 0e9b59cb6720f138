"""What code tells to whoever records the function that it runs in, such as `weft.compile`.

Elements, gradients and random draws of tensors are told where tensors are read and written, and settings stand in cells
(`cell.py`). So only objects that keep other state between calls (modules, optimizers, gradient reducers) tell by
themselves what a replay depends on and what it repeats, and what cannot be recorded says so.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result


class Capture:
    """The ambient `capture` while a function is recorded. By default it ignores what it is told.

    The types of tensors, values and roles are defined above this module.

    exports   whether it records a program that is exported
    defers    whether calls of functions that are no operators can be a part of what is recorded
    takes_calls  whether it makes calls itself of functions with a derivative of their own, and of excluded ones
    """

    exports: bool = False

    @property
    def takes_calls(self) -> bool:
        return False

    @property
    def defers(self) -> bool:
        return False

    # --- tensors ---

    def is_inside(self, value: Arg) -> bool:
        """Whether the function has recorded a value."""
        return False

    def creates_leaf(self, value: Arg) -> None:
        """The function makes a leaf from Python's data."""

    def read(self, tensor: Arg, value: Arg) -> None:
        """An operator reads a tensor."""

    def wrote(self, tensor: Arg, old: Arg) -> None:
        """A tensor was written in place; `old` is the value that it had before."""

    def changes(self, tensor: Arg, what: str) -> None:
        """Something of a tensor other than its elements will change."""

    def reads_grad(self, role: Arg) -> None:
        """A leaf's `.grad` is read."""

    def writes_grad(self, role: Arg, *, reads: bool) -> None:
        """A leaf's `.grad` will change; `reads` if the result depends on the present gradient."""

    def lift(self, value: Arg, getter: Callable[[], Arg]) -> None:
        """A number that replays read anew by `getter`."""

    # --- objects that keep state ---

    def called(self, *things: object) -> None:
        """A module runs: its call reads attributes of these."""

    def stepped(self, depends_on: Callable[[], object], *things: object) -> None:
        """An optimizer steps, which a replay does while `depends_on` returns an equal result."""

    def depends(self, thing: object, name: str, depends_on: Callable[[], object]) -> None:
        """The function will read state of an object: a replay is valid while `depends_on` returns an equal result."""

    def repeats(self, effect: Callable[[], object]) -> None:
        """The function changes state, as every replay does by calling `effect()`."""

    def call_whole(self, function: AnyCallable, args: Args, kwargs: Kwargs) -> Result:
        """The result of a function with a derivative of its own; called if it `takes_calls`."""
        return function(*args, **kwargs)

    # --- what cannot be recorded ---

    def call_apart(self, function: AnyCallable, args: Args, kwargs: Kwargs, why: str) -> Result:
        """The result of a function that shall not be recorded; called if it `takes_calls`."""
        del why
        return function(*args, **kwargs)

    def user_derivative(self, name: str) -> None:
        """An `autograd.Function` is applied."""

    def needs_elements(self, value: Arg, *, decides: bool = False) -> None:
        """The function reads a value; `decides` if Python's control flow depends on it."""

    def needs_value(self, what: str = "a tensor's value", advice: str = "") -> None:
        """Later results depend on something that a replay cannot know; `advice` is what helps if it must be known."""

    def prevent(self, why: str) -> None:
        """There can be no replay."""


UNCAPTURED = Capture()


def active_capture() -> Capture:
    """Who records what this thread does: one that ignores everything, if nobody does."""
    return ambient().capture or UNCAPTURED
