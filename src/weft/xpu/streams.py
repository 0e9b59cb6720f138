"""Streams and events of Intel's GPUs."""

from weft._devices.streams import Event as Event
from weft._devices.streams import Stream as Stream
