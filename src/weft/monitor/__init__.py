"""Events and statistics of a program, and the handlers that they are sent to."""

from weft.monitor._events import Event as Event
from weft.monitor._events import EventHandlerHandle as EventHandlerHandle
from weft.monitor._events import TensorboardEventHandler as TensorboardEventHandler
from weft.monitor._events import log_event as log_event
from weft.monitor._events import register_event_handler as register_event_handler
from weft.monitor._events import unregister_event_handler as unregister_event_handler
from weft.monitor._stat import STAT_EVENT as STAT_EVENT
from weft.monitor._stat import Aggregation as Aggregation
from weft.monitor._stat import Stat as Stat
