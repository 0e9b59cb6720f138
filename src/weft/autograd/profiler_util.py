"""The events of profiles, under PyTorch's import path."""

from weft._profile.event import DeviceType as DeviceType
from weft._profile.event import FunctionEvent as FunctionEvent
from weft._profile.event import FunctionEventAvg as FunctionEventAvg
from weft._profile.event import Interval as Interval
from weft._profile.events import EventList as EventList
