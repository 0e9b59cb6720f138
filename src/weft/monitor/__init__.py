"""Seeing what a program does while it runs: callbacks around operators, events, and statistics."""

from weft._base.flight import start_flight_recorder as start_flight_recorder
from weft._base.flight_report import crash_report as crash_report
from weft._base.usage import log_api_usage_once as log_api_usage_once
from weft._base.usage import set_api_usage_handler as set_api_usage_handler
from weft.monitor._callbacks import CallbackHandle as CallbackHandle
from weft.monitor._callbacks import RecordFunction as RecordFunction
from weft.monitor._callbacks import RecordScope as RecordScope
from weft.monitor._callbacks import TensorType as TensorType
from weft.monitor._callbacks import add_global_callback as add_global_callback
from weft.monitor._callbacks import add_thread_local_callback as add_thread_local_callback
from weft.monitor._callbacks import debug_info as debug_info
from weft.monitor._callbacks import get_debug_info as get_debug_info
from weft.monitor._events import Event as Event
from weft.monitor._events import EventHandlerHandle as EventHandlerHandle
from weft.monitor._events import TensorboardEventHandler as TensorboardEventHandler
from weft.monitor._events import data_value_t as data_value_t
from weft.monitor._events import log_event as log_event
from weft.monitor._events import register_event_handler as register_event_handler
from weft.monitor._events import unregister_event_handler as unregister_event_handler
from weft.monitor._report import report as report
from weft.monitor._stat import STAT_EVENT as STAT_EVENT
from weft.monitor._stat import Aggregation as Aggregation
from weft.monitor._stat import Stat as Stat
