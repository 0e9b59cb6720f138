"""Processing of signals."""

from weft.signal import windows as windows
