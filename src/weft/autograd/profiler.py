"""PyTorch's older profiler, under its import path."""

from weft._absent.refused import load_nvprof as load_nvprof
from weft._base.exports import missing as _missing
from weft.profiler._block import _profiler_enabled as _profiler_enabled
from weft.profiler._block import emit_itt as emit_itt
from weft.profiler._block import emit_nvtx as emit_nvtx
from weft.profiler._block import profile as profile
from weft.profiler._block import record_function as record_function
from weft.profiler._config import kineto_available as kineto_available
from weft.profiler._event import DeviceType as DeviceType
from weft.profiler._event import FunctionEvent as FunctionEvent
from weft.profiler._event import FunctionEventAvg as FunctionEventAvg
from weft.profiler._events import EventList as EventList


def __getattr__(name: str) -> bool:
    """`_is_profiler_enabled`, another name of the answer of `_profiler_enabled`."""
    if name == "_is_profiler_enabled":
        return _profiler_enabled()
    raise _missing(__name__, name, lambda: globals())
