"""Event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from weft.utils.tensorboard import SummaryWriter


@pytest.fixture
def written(tmp_path):
    """Call it with what to do with a writer; it gives a reader of what was written."""

    def write(use):
        folder = str(tmp_path / "log")
        with SummaryWriter(folder) as writer:
            use(writer)
        return EventAccumulator(folder, size_guidance=dict.fromkeys(("tensors", "histograms", "images"), 0)).Reload()

    return write
