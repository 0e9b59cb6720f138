"""The table of all controls."""

from __future__ import annotations

from weft.distributed.rpc._backward import gradients, mark
from weft.distributed.rpc._context_release import join_context, release
from weft.distributed.rpc._pending_deletes import delete_forks
from weft.distributed.rpc._protocol import table
from weft.distributed.rpc._rref import add_fork, child_known, create, creation_failed, fetch
from weft.distributed.rpc._shutdown import missing, query
from weft.distributed.rpc._status import status
from weft.distributed.rpc._trace.recording import clock, drop_trace, end_trace

CONTROLS = table(
    create,
    creation_failed,
    fetch,
    add_fork,
    child_known,
    delete_forks,  # for references
    mark,
    gradients,
    release,
    join_context,  # for distributed autograd
    query,
    missing,  # for shutdown
    end_trace,
    drop_trace,
    clock,
    status,  # for traces and statistics
)
