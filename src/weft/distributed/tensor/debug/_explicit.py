"""A mode in which nothing is sent that the program has not called for."""

from __future__ import annotations

import warnings
from types import TracebackType

from weft._base.site import user_site
from weft._lazy.value import Value
from weft.distributed.tensor._observers import observers
from weft.errors import DistError


class ExplicitRedistributionContext:
    """Within its `with` block, an operator on distributed tensors that would send something raises `RuntimeError`.

    So would reading a value of which this process has a part, as by `item()`. What the program calls for itself may
    send: `redistribute`, `full_tensor`, `distribute_tensor`. All processes raise alike, before anything is sent.

    enable   False allows everything again, in a block within another
    strict   accepted; what moves without being sent is never an error
    mode     "raise", or "warn" for a warning instead
    """

    def __init__(self, enable: bool = True, strict: bool = False, mode: str = "raise") -> None:
        del strict
        if mode not in ("raise", "warn"):
            raise DistError(f'Invalid mode {mode}; it is "raise" or "warn"')
        self._enable = enable
        self._mode = mode

    def __enter__(self) -> ExplicitRedistributionContext:
        observers().append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        observers().remove(self)

    def on_transfer(self, collective: str, part: Value, *, requested: bool) -> None:
        """Raise or warn, if this is the innermost such mode and the program has not called for the transfer."""
        innermost = [mode for mode in observers() if isinstance(mode, ExplicitRedistributionContext)][-1]
        if requested or innermost is not self or not self._enable:
            return
        text = (
            f"implicit {collective} of {part.aval} at {user_site()}, where communication must be explicit; call "
            "redistribute() or full_tensor() before"
        )
        if self._mode == "raise":
            raise DistError(text)
        warnings.warn(text, stacklevel=2)
