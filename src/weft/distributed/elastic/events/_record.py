"""Recording events."""

from __future__ import annotations

import logging
import os
import socket
import traceback

from weft._base.site import calling_frame
from weft.distributed.elastic.events.api import Event, NodeState, RdzvEvent
from weft.distributed.elastic.events.handlers import get_logging_handler, installed

_log = logging.getLogger(__name__)


def _logger(destination: str) -> logging.Logger:
    """The logger of a destination. It does not propagate, so that each event is handled once."""
    handler = get_logging_handler(destination)
    logger = logging.getLogger(f"torchelastic-events-{destination}")
    if handler not in logger.handlers:
        logger.setLevel(os.environ.get("LOGLEVEL", "INFO"))
        logger.propagate = False
        logger.addHandler(handler)
    return logger


def record(event: Event, destination: str = "null") -> None:
    """Log an event as JSON to a destination of `get_logging_handler`, and pass it to the configured handler."""
    _logger(destination).info(event.serialize())
    try:
        installed.handler.record(event)
    except Exception:  # a user's handler must not end the job
        _log.exception("the event handler %s failed", type(installed.handler).__name__)


def record_rdzv_event(event: RdzvEvent) -> None:
    """Log an event of a rendezvous as JSON to the destination `dynamic_rendezvous`."""
    _logger("dynamic_rendezvous").info(event.serialize())


def construct_and_record_rdzv_event(
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Create and record an event of a rendezvous, if there is a handler for it.

    Name, host and process id default to the caller's. The event of a failed node includes the traceback of the
    exception that is being handled.
    """
    # Nobody listens by default, and events are recorded at each step of a rendezvous.
    if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
        return
    caller = calling_frame(1).f_code
    event = RdzvEvent(
        name=f"{os.path.basename(caller.co_filename)}:{name or caller.co_name}",
        run_id=run_id,
        message=message,
        hostname=hostname or socket.gethostname(),
        pid=pid or os.getpid(),
        node_state=node_state,
        master_endpoint=master_endpoint,
        rank=rank,
        local_id=local_id,
        error_trace=traceback.format_exc() if node_state == NodeState.FAILED else "",
    )
    record_rdzv_event(event)
