"""A mode in which nothing is moved that the program has not called for."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.site import user_site, warn_user
from weft._lazy.value import Value
from weft.distributed._observers import observe, observers, stop_observing
from weft.errors import DistError


class ExplicitRedistributionContext:
    """Within its `with` block, an operator on distributed tensors that would send something raises `RuntimeError`.

    So would reading a value of which this process has a part, as by `item()`. What the program calls for itself may
    send: `redistribute`, `full_tensor`, `distribute_tensor`, collectives. All processes raise alike, before anything is
    sent. Of nested blocks, the innermost one decides.

    enable   False allows everything again, in a block within another
    strict   also refuse redistributions for which nothing is sent, such as taking a part of what all have
    mode     "raise", or "warn" for a warning instead
    """

    def __init__(self, enable: bool = True, strict: bool = False, mode: str = "raise") -> None:
        if mode not in ("raise", "warn"):
            raise DistError(f'Invalid mode {mode}; it is "raise" or "warn"')
        self._enable = enable
        self._strict = strict
        self._mode = mode

    def __enter__(self) -> ExplicitRedistributionContext:
        observe(self)
        return self

    def __exit__(self, *exception: object) -> None:
        stop_observing(self)

    def on_redistribution(self, text: str, *, sends: bool) -> None:
        """Refuse what an operator needs."""
        if sends or self._strict:
            self._refuse(text, "call redistribute() or full_tensor() before")

    def on_collective(self, name: str, values: Sequence[Value], *, requested: bool) -> None:
        """Refuse what a backward pass needs."""
        if not requested:
            self._refuse(
                f"{name} of {', '.join(str(value.aval) for value in values)}",
                "its block need not hold the backward pass",
            )

    def _refuse(self, what: str, way_out: str) -> None:
        innermost = [mode for mode in observers() if isinstance(mode, ExplicitRedistributionContext)][-1]
        if innermost is not self or not self._enable:
            return
        text = (
            f"Implicit redistribution occurred for {what}, at {user_site()}, while ExplicitRedistributionContext was "
            f"active; {way_out}"
        )
        if self._mode == "raise":
            raise DistError(text)
        warn_user(text)
