"""Connects to the store of a node that may start later than this one."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from weft._comm.deadline import Deadline
from weft._comm.stores.tcp_store import TCPStore
from weft.distributed.elastic.rendezvous.utils import fact
from weft.errors import DistError, JobKeyError, RendezvousConnectionError

_log = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
_NOTICE_SECONDS = 3.0
_TRY_SECONDS = 1.0
_PAUSE_SECONDS = 0.05
_ADVICE = "is the address right (--rdzv-endpoint, or --master-addr and --master-port), and is the node there started?"


def connect_to_store(host: str, port: int, timeout: timedelta, seconds: float, advice: str = _ADVICE) -> TCPStore:
    """A client of the store, whose calls wait at most `timeout`.

    This tries to connect for `seconds`, and tells the user if it takes long. A peer with another job key is an error at
    once. Other errors end with `advice`.
    """
    deadline, notice = Deadline(seconds), Deadline(_NOTICE_SECONDS)
    warned = False
    while True:
        start = time.monotonic()
        try:
            # Tried again and again with a short limit, since the node that serves the store may start later than this
            # one.
            store = TCPStore(host, port, timeout=timedelta(seconds=_TRY_SECONDS), wait_for_workers=False)
            store.set_timeout(timeout)
            return store
        # Another key does not become right by waiting.
        except JobKeyError as error:
            raise RendezvousConnectionError(f"no rendezvous at {host}:{port}: {error}") from error
        except (DistError, OSError) as error:
            what = f"no rendezvous at {host}:{port} ({fact(error)})"
            if deadline.expired:
                raise RendezvousConnectionError(f"{what}; {advice}") from error
        if notice.expired and not warned:
            _log.warning("%s; trying for %g s; %s", what, seconds, advice)
            warned = True
        time.sleep(max(0.0, _PAUSE_SECONDS - (time.monotonic() - start)))
