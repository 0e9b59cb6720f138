"""Arrays that were released come back when they are read."""

from __future__ import annotations

import numpy as np

import weft as torch
from weft._base.state import ambient
from weft._lazy.flushing import flush_pending
from weft._lazy.value import Absent


def released(tensor, log):
    """Take the array of a tensor away; reading it notes that in `log`."""
    value = tensor._read()
    array = value.read()

    def bring_back():
        log.append("back")
        value.content = array

    value.content = Absent(bring_back)
    return tensor


def test_a_program_that_reads_it_brings_it_back():
    log = []
    x = released(torch.arange(3.0) + 1, log)
    y = (x * 2).sum() + (x * 3).sum()
    assert log == []
    assert y.item() == 30
    assert log == ["back"]


def test_so_does_a_small_operator_and_whoever_reads_the_elements():
    log = []
    x = released(torch.ones(2), log)
    assert x.tolist() == [1, 1]
    y = released(torch.ones(2), log)
    np.testing.assert_array_equal((y + 1).numpy(), [2, 2])
    z = released(torch.ones(2), log).detach()  # shares the elements
    assert z.tolist() == [1, 1]
    assert log == ["back"] * 3


def test_a_backward_pass_reads_it():
    log = []
    w = torch.ones(2, requires_grad=True)
    x = torch.full((2,), 3.0)
    y = (w * x).sum()
    flush_pending()
    released(x, log)
    y.backward()
    assert w.grad.tolist() == [3, 3]
    assert log == ["back"]


def test_what_waits_for_a_computation_is_called_after_it():
    log = []
    x = torch.ones(2) + 1
    ambient().pending.when_computed.append(lambda: log.append(not x._read().is_pending))
    flush_pending()
    flush_pending()
    assert log == [True]


def test_a_checkpointed_region_hands_over_what_waits():
    log = []
    w = torch.ones(2, requires_grad=True)

    def function(x):
        y = x * w
        ambient().pending.when_computed.append(lambda: log.append("computed"))
        flush_pending()
        assert log == []
        return y * 2

    y = torch.utils.checkpoint.checkpoint(function, torch.ones(2))
    assert log == ["computed"]
    y.sum().backward()
    assert w.grad.tolist() == [2, 2]
