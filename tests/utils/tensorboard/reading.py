"""Reading events one by one."""

from __future__ import annotations

import os

import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from weft.utils.tensorboard import SummaryWriter


def events(folder):
    """All events of the one file in a folder."""
    (name,) = (entry for entry in os.listdir(folder) if "tfevents" in entry)
    return [Event.FromString(raw) for raw in RawEventFileLoader(os.path.join(folder, name)).Load()]


def refused(tmp_path, method, *args, error, match, **options):
    """The call fails, and writes nothing."""
    folder = tmp_path / f"log{len(os.listdir(tmp_path))}"
    with SummaryWriter(folder) as writer, pytest.raises(error, match=match):
        getattr(writer, method)(*args, **options)
    assert len(events(folder)) == 1  # the file's version
    assert len(os.listdir(folder)) == 1
