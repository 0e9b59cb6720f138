"""What is run on an accelerator: `make accelerator`, where there is one."""

from __future__ import annotations

import pytest

import weft as torch
from weft import accelerator

if not accelerator.is_available():
    collect_ignore_glob = ["test_*"]


@pytest.fixture
def device():
    """The accelerator, as the default device."""
    device = accelerator.current_accelerator()
    assert device is not None
    torch.set_default_device(device)
    yield device
    torch.set_default_device(None)
