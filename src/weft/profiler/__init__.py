"""What a program's time goes to, with PyTorch's interface."""

from weft.profiler import itt as itt
from weft.profiler import profiler as profiler
from weft.profiler._block import record_function as record_function
from weft.profiler._config import ProfilerActivity as ProfilerActivity
from weft.profiler._config import _ExperimentalConfig as _ExperimentalConfig
from weft.profiler._config import kineto_available as kineto_available
from weft.profiler._config import supported_activities as supported_activities
from weft.profiler._event import DeviceType as DeviceType
from weft.profiler._execution_trace import ExecutionTraceObserver as ExecutionTraceObserver
from weft.profiler._trace import _KinetoProfile as _KinetoProfile
from weft.profiler.profiler import ProfilerAction as ProfilerAction
from weft.profiler.profiler import profile as profile
from weft.profiler.profiler import schedule as schedule
from weft.profiler.profiler import tensorboard_trace_handler as tensorboard_trace_handler
