"""What PyTorch's programs take of the profiler from its extension module."""

from weft.profiler import ProfilerActivity as ProfilerActivity
from weft.profiler import _ExperimentalConfig as _ExperimentalConfig
from weft.profiler._callbacks import RecordScope as RecordScope
