"""Events of a job, for logs and for handlers of the user."""

from weft.distributed.elastic.events._record import construct_and_record_rdzv_event as construct_and_record_rdzv_event
from weft.distributed.elastic.events._record import record as record
from weft.distributed.elastic.events._record import record_rdzv_event as record_rdzv_event
from weft.distributed.elastic.events.api import Event as Event
from weft.distributed.elastic.events.api import EventMetadataValue as EventMetadataValue
from weft.distributed.elastic.events.api import EventSource as EventSource
from weft.distributed.elastic.events.api import NodeState as NodeState
from weft.distributed.elastic.events.api import RdzvEvent as RdzvEvent
from weft.distributed.elastic.events.handlers import EventHandler as EventHandler
from weft.distributed.elastic.events.handlers import NullEventHandler as NullEventHandler
from weft.distributed.elastic.events.handlers import configure as configure
from weft.distributed.elastic.events.handlers import get_logging_handler as get_logging_handler
