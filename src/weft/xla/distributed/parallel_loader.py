"""Loaders that move batches to the device in advance, usually imported as `pl`."""

from __future__ import annotations

from weft.xla._loader import MpDeviceLoader as MpDeviceLoader
from weft.xla._loader import ParallelLoader as ParallelLoader
from weft.xla._loader import PerDeviceLoader as PerDeviceLoader
