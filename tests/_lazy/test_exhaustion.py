"""Out of memory on the CPU is `OutOfMemoryError`, whoever was to allocate it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.utils import memory

G = 1 << 45  # elements that no address space has room for

PROGRAMS = {
    "constant": lambda: weft.full((G,), 2.0)[5].item(),
    "array": lambda: weft.zeros(G).numpy(),
    "list": lambda: weft.zeros(G)[:3].tolist(),
    "table": lambda: weft.arange(G)[1].item(),
    "copy of a view": lambda: weft.ones(1).expand(G).clone()[3].item(),
    "text": lambda: str(weft.zeros(1 << 42)),
    "file": lambda: weft.save(weft.full((G,), 3.0), io.BytesIO()),
    "random": lambda: weft.rand(G).sum().item(),
    "storage": lambda: weft.UntypedStorage(G),
    "larger storage": lambda: weft.UntypedStorage(8).resize_(G),
    "address": lambda: weft.empty(G).data_ptr(),
    "given array": lambda: weft.tensor(np.broadcast_to(np.float32(1), (G,))),
    "shared array": lambda: weft.from_numpy(np.broadcast_to(np.float32(1), (G,))).clone()[0].item(),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_too_large(program):
    with pytest.raises(
        weft.OutOfMemoryError, match=r"^CPU out of memory\. DefaultCPUAllocator: can't allocate memory: "
    ):
        program()


def test_the_error_says_what_was_to_be_computed_and_where():
    memory.record_history()
    try:
        x = weft.full((G,), 2.0)
        with pytest.raises(weft.OutOfMemoryError) as raised:
            x.exp().sum().item()  # the line
    finally:
        memory.record_history(enabled=False)
    told = str(raised.value).splitlines()
    assert told[1] == "a program was to compute:"
    line = [text.endswith("# the line") for text in Path(__file__).read_text().splitlines()].index(True) + 1
    assert any(re.fullmatch(rf"  .* TiB  float32\[{G}\], by exp  {re.escape(__file__)}:{line}", text) for text in told)
    assert raised.value.__cause__ is None


def test_what_was_recorded_with_it_is_computed():
    x, large = weft.ones(3), weft.full((G,), 2.0)
    x += 1
    with pytest.raises(weft.OutOfMemoryError):
        large[5].item()
    assert x.tolist() == [2, 2, 2]
