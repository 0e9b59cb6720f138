"""Anomaly detection: backward passes that stop at NaN."""

from __future__ import annotations

from typing import Self

from weft._base.state import ambient, set_field
from weft.autograd.grad_mode import Mode


class detect_anomaly(Mode):
    """Raise in a backward pass at the first derivative that is NaN, and name the line of its forward operator.

    Every derivative is computed and checked separately, so this is slow. Without `check_nan`, nothing is checked.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(anomaly=True, check_nan=check_nan)


class set_detect_anomaly(Mode):
    """Switch anomaly detection on or off: from this call on, or for a `with` block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(anomaly=mode, check_nan=check_nan)
        state = ambient()
        self._before = {"anomaly": state.watchers.anomaly, "check_nan": state.watchers.check_nan}
        set_field(anomaly=mode, check_nan=check_nan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        set_field(**self._before)
