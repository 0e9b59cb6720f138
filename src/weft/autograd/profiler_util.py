"""The events of profiles, under PyTorch's import path."""

from weft.profiler._event import DeviceType as DeviceType
from weft.profiler._event import FunctionEvent as FunctionEvent
from weft.profiler._event import FunctionEventAvg as FunctionEventAvg
from weft.profiler._event import Interval as Interval
from weft.profiler._events import EventList as EventList
