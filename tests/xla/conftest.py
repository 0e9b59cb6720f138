"""What tests of the XLA interface start from."""

from __future__ import annotations

import pytest

from weft._base.device import set_current_index
from weft.xla import _context
from weft.xla.debug import metrics as met


@pytest.fixture(autouse=True)
def fresh_device():
    """No counts, closures or current device of another test."""
    met.clear_all()
    _context._DEVICE_CONTEXTS.clear()
    yield
    set_current_index("xla", 0)
    met.clear_all()
