"""Streams and events of CUDA devices: every device has one stream."""

from weft._devices.streams import Event as Event
from weft._devices.streams import Stream as Stream
