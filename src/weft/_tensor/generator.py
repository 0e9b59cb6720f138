"""Random generators: a seed, and the number of draws so far."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass

import numpy as np

from weft._base.capture import active_capture
from weft._base.device import CPU, DeviceLike
from weft._base.device import device as device_class
from weft._base.forks import renew_in_forks
from weft._base.types import SavedState
from weft._tensor.convert import from_host
from weft._tensor.generator_state import packed, unpacked
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, SettingError, ValueRangeError

_SEEDS = 1 << 64


class _State:
    """The state of a generator. The seed's 64 bits are those of a signed number, as programs take it."""

    __slots__ = ("offset", "seed")

    def __init__(self) -> None:
        self.seed = 67280421310721
        self.offset = 0


_drawing = threading.Lock()  # one for all generators, as it is held for a moment, and each fork renews it
renew_in_forks(globals(), "_drawing")


class Generator:
    """A source of random numbers. The n-th draw depends only on the seed and n, on every device and mesh.

    Every random operator takes one draw, with the key `fold_in(key(seed), n)` (threefry2x32).
    """

    def __init__(self, device: DeviceLike | None = "cpu") -> None:
        self._device = None if device is None else str(device_class(device))
        active_capture().needs_value("a generator of its own")
        self._own_state = _State()

    @property
    def _state(self) -> _State:
        return self._own_state

    @property
    def device(self) -> device_class:
        """The device of the generator; draws do not depend on it."""
        return device_class(self._device) if self._device is not None else CPU

    def manual_seed(self, seed: object) -> Generator:
        """Restart from a seed of 64 bits, signed or not: -1 and 2**64 - 1 are the same."""
        if not isinstance(seed, int):
            raise SettingError(f"manual_seed expected a long, but got {type(seed).__name__}")
        if not -(2**63) <= seed < 2**64:
            raise ValueRangeError(f"Overflow when unpacking long long: the seed is {seed}")
        self.restore(((seed + (_SEEDS >> 1)) % _SEEDS - (_SEEDS >> 1), 0))
        return self

    def seed(self) -> int:
        """Restart from a seed of the operating system; returns it."""
        seed = secrets.randbits(63)
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed from which the generator was started, at least 0 and below 2**64."""
        active_capture().needs_value("a generator's state")
        return self._state.seed % _SEEDS

    def draw(self) -> tuple[int, int]:
        """Take a draw: returns its seed and number."""
        with _drawing:
            state = self._state
            offset = state.offset
            state.offset = offset + 1
            return state.seed, offset

    def state(self) -> tuple[int, int]:
        """The seed and the number of draws so far."""
        active_capture().needs_value("a generator's state")
        state = self._state
        return state.seed, state.offset

    def restore(self, state: tuple[int, int]) -> None:
        """Set a state that `state` returned."""
        active_capture().needs_value("to seed a generator")
        with _drawing:
            current = self._state
            current.seed, current.offset = state

    def get_state(self) -> Tensor:
        """The state: a `uint8` tensor of the size that PyTorch's has, 5056 on the CPU and 16 on other devices."""
        return from_host(packed(*self.state(), for_cpu=self.device.type == "cpu"))

    def set_state(self, new_state: object) -> Generator:
        """Set a state that `get_state` returned on any device, and return the generator; `TypeError` for anything else.

        A state of PyTorch's CPU generator cannot be continued: a seed is derived from it, with a warning.
        """
        if not isinstance(new_state, Tensor):
            raise ArgumentError(f"expected a torch.ByteTensor, but got {kind_and_advice(new_state)}")
        raw = new_state._host()
        if raw.dtype != np.uint8:
            raise ArgumentError(f"RNG state must be a torch.ByteTensor, got {new_state.dtype}{list(raw.shape)}")
        self.restore(unpacked(raw))
        return self

    def clone_state(self) -> Generator:
        """Another generator with this state."""
        clone = Generator(self._device)
        clone.restore(self.state())
        return clone

    def get_offset(self) -> int:
        """The number of draws so far."""
        return self.state()[1]

    def set_offset(self, offset: int) -> None:
        """Set the number of draws so far."""
        if offset < 0:
            raise ValueRangeError(f"set_offset: the offset must not be negative, got {offset}")
        self.restore((self.state()[0], offset))

    def graphsafe_get_state(self) -> Generator:
        """The generator, whose state compiled functions read anew: what `graphsafe_set_state` takes."""
        return self

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Share the state of another generator: draws of one are draws of both."""
        active_capture().needs_value("to seed a generator")
        self._own_state = state._own_state
        return self

    def __reduce__(self) -> tuple[object, ...]:
        offset = None if self.device.type == "cpu" else self.get_offset()
        return type(self), (self.device,), (self.initial_seed(), offset, self.get_state())

    def __setstate__(self, state: tuple[int, int | None, Tensor] | SavedState) -> None:
        if isinstance(state, dict):  # of an earlier version, which makes the object without a device
            Generator.__init__(self, state["device"])
            self.restore(state["state"])
        else:
            self.set_state(state[2])


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

    def __reduce__(self) -> tuple[object, ...]:
        return self.clone_state().__reduce__()


# no cell: captures note its draws, and replays draw anew
default_generator = _Default()
"""The generator of operators that are given none."""


def own_generator(generator: object) -> Generator:
    """The generator itself; `TypeError` for any other object, such as one of PyTorch's."""
    if isinstance(generator, Generator):
        return generator
    raise ArgumentError(f"argument 'generator' must be Generator, not {kind_and_advice(generator)}")
