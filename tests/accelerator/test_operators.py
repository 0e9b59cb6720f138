"""Every operator gives on the accelerator the answers that PyTorch gave on the CPU."""

from __future__ import annotations

import pytest

import weft as torch
from tests.oracle.cases import ANSWERS, load
from tests.oracle.replay import check, report

_FEW = 2  # cases of an operator: each is compiled

_PATHS = sorted(ANSWERS.glob("*.npz"))


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_recorded_answers(path, device):
    assert torch.zeros(1).device.type == device.type
    # cuDNN convolves no integers, and neither does PyTorch there
    cases = [case for case in load(path) if not ("conv" in case.op and "int" in case.label)]
    torch.set_float32_matmul_precision("highest")
    faults = report(check(cases[:: max(1, -(-len(cases) // _FEW))]))
    assert not faults, faults
