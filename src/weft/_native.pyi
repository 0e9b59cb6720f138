"""The extension: kernels for XLA on CPUs, and the machine of the first tier. It is there if a C++ compiler was."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

class Fragment:
    """What an application computes, as steps over registers that show parts of buffers.

    buffers    for each its bytes, or the array of a constant
    registers  (buffer, offset, shape, strides, dtype), first those of the inputs; the buffer ~k is what has input k
    inputs     how many there are
    outputs    numbers of registers
    steps      (kind, payload, flags, registers of the results, registers of the operands)
    """

    def __new__(
        cls,
        buffers: Sequence[int | np.ndarray],
        registers: Sequence[tuple[int, int, Sequence[int], Sequence[int], np.dtype]],
        inputs: int,
        outputs: Sequence[int],
        steps: Sequence[tuple[int, object, int, Sequence[int], Sequence[int]]],
        /,
    ) -> Fragment: ...

class Machine:
    """Fragments joined to a program. Call it with its inputs: arrays of the right types, or numbers.

    inputs   registers, of which the buffers do not count
    parts    (fragment, entries that it takes); entries are the inputs, then the outputs of each part
    outputs  numbers of entries
    """

    def __new__(
        cls,
        inputs: Sequence[tuple[int, int, Sequence[int], Sequence[int], np.dtype]],
        parts: Sequence[tuple[Fragment, Sequence[int]]],
        outputs: Sequence[int],
        /,
    ) -> Machine: ...
    def __call__(self, inputs: Sequence[Any], /) -> list[np.ndarray]: ...
    def calls(self) -> list[Callable[..., Any]]:
        """The functions that it calls, since no loops of its own compute them."""

def has_loop(ufunc: np.ufunc, types: tuple[np.dtype, ...], /) -> bool:
    """Whether NumPy has a loop for operands of exactly these types."""

def has_copy(source: np.dtype, target: np.dtype, /) -> bool:
    """Whether there is a loop that converts elements of one type to another."""

def watch(received: list[Any], poll: Callable[[], object], quiet: Callable[[], Any], /) -> None:
    """Call `poll` before long steps while the list of signals is not empty, and functions within `quiet()`."""
