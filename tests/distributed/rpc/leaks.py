"""What workers keep for others, which in the end is nothing."""

from __future__ import annotations

import gc
import time

from tests.waiting import until
from weft.distributed import rpc
from weft.distributed.rpc._state import current_agent

SECONDS = 20.0


def left():
    """What this worker keeps for others or waits for, as far as that is not nothing."""
    gc.collect()
    found = rpc.debug_info() | {"contexts": len(current_agent().contexts)}
    names = ("num_owner_rrefs", "num_forks", "num_parent_rrefs", "num_pending_calls", "contexts")
    return {name: found[name] for name in names if found[name]}


def left_in_the_end(seconds=SECONDS):
    """What is left after some seconds: the messages that have it given up are on their way."""
    end = time.monotonic() + seconds
    while (found := left()) and time.monotonic() < end:
        time.sleep(0.005)
    return found


def nothing_is_left(*others):
    """Require it of this worker and others, which may wait for an answer in `shutdown`.

    What is garbage at one of them may hold what another one keeps, so all collect theirs each time.
    """
    latest = {}

    def is_clean():
        latest.clear()
        latest.update(_left_at(others))
        return not latest

    until(is_clean, lambda: f"something is left: {latest}", SECONDS)


def _left_at(others):
    found = {"here": left()}
    for name in others:
        found[name] = rpc.rpc_sync(name, left, timeout=2 * SECONDS)
        found[name].pop("num_pending_calls", None)
    return {name: kept for name, kept in found.items() if kept}
