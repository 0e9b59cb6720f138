"""Ctrl-C in a loop over a loader."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import weft
from weft.utils.data import DataLoader, default_collate
from weft.utils.data._utils import collate


def test_the_traceback_ends_at_the_loop():
    def interrupted(batch):
        os.kill(os.getpid(), signal.SIGINT)
        return default_collate(batch)

    interrupted.__code__ = interrupted.__code__.replace(co_filename=collate.__file__)  # as if the loader's own ran then
    with pytest.raises(KeyboardInterrupt) as caught:
        for _ in DataLoader([weft.ones(2)] * 2, batch_size=2, collate_fn=interrupted):
            pass
    assert {Path(entry.path).name for entry in caught.traceback} == {Path(__file__).name}
