"""Random generators: a seed, and the number of draws so far."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from typing import Any

from weft._base.device import CPU, DeviceLike
from weft._base.device import device as device_class
from weft._tensor.capture_hooks import depends_on
from weft.errors import SettingError, ValueRangeError

_MASK = (1 << 63) - 1


class _State:
    """The state of a generator."""

    __slots__ = ("offset", "seed")

    def __init__(self) -> None:
        self.seed = 67280421310721
        self.offset = 0


class Generator:
    """A source of random numbers. The n-th draw depends only on the seed and n, on every device and mesh.

    Every random operator takes one draw, with the key `fold_in(key(seed), n)` (threefry2x32).
    """

    def __init__(self, device: DeviceLike | None = "cpu") -> None:
        self._device = None if device is None else str(device_class(device))
        depends_on("a generator of its own")
        self._lock = threading.Lock()
        self._own_state = _State()

    @property
    def _state(self) -> _State:
        return self._own_state

    @property
    def device(self) -> device_class:
        """The device of the generator; draws do not depend on it."""
        return device_class(self._device) if self._device is not None else CPU

    def manual_seed(self, seed: int) -> Generator:
        """Restart from a seed."""
        if not isinstance(seed, int):
            raise SettingError(f"manual_seed expected a long, but got {type(seed).__name__}")
        if not -(2**63) <= seed < 2**64:
            raise ValueRangeError(f"Overflow when unpacking long long: the seed is {seed}")
        self.restore((seed & _MASK, 0))
        return self

    def seed(self) -> int:
        """Restart from a seed of the operating system; returns it."""
        seed = secrets.randbits(63)
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed from which the generator was started."""
        depends_on("a generator's state")
        return self._state.seed

    def draw(self) -> tuple[int, int]:
        """Take a draw: returns its seed and number."""
        with self._lock:
            state = self._state
            offset = state.offset
            state.offset = offset + 1
            return state.seed, offset

    def state(self) -> tuple[int, int]:
        """The seed and the number of draws so far."""
        depends_on("a generator's state")
        state = self._state
        return state.seed, state.offset

    def restore(self, state: tuple[int, int]) -> None:
        """Set a state that `state` returned."""
        depends_on("to seed a generator")
        with self._lock:
            current = self._state
            current.seed, current.offset = state

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self._device, "state": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Generator.__init__(self, state["device"])
        self.restore(state["state"])


@dataclass(frozen=True)
class PartOfDraws:
    """Given to a factory in place of a generator: it makes a part of what it would make in an array of `sizes`.

    first   the position of the part's first element in that array
    """

    generator: Generator | None
    first: int
    sizes: tuple[int, ...]


class _Default(Generator):
    """The default generator. A thread that is a rank has its own state."""

    def __init__(self) -> None:
        super().__init__()
        self._of_thread = threading.local()

    @property
    def _state(self) -> _State:
        return getattr(self._of_thread, "state", self._own_state)

    def separate(self) -> None:
        """Give this thread its own state, as a new process has."""
        self._of_thread.state = _State()


default_generator = _Default()
"""The generator of operators that are given none."""
