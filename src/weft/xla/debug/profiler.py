"""`torch_xla.debug.profiler`, usually imported as `xp`: traces by jax's profiler, which TensorBoard shows."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

import jax

from weft._base.types import Arg
from weft.errors import XlaError
from weft.xla._ordinals import is_master_ordinal
from weft.xla._steps import mark_step

P = ParamSpec("P")
T = TypeVar("T")
_HERE = ("localhost", "127.0.0.1", "[::1]")


def start_server(port: int, only_on_master: bool = True) -> object:
    """Start the server that TensorBoard captures traces from, by default on the first replica of each host only.

    Returns the server, or None on the other replicas. One process has one server.
    """
    return jax.profiler.start_server(port) if is_master_ordinal() or not only_on_master else None


def start_trace(log_dir: str | os.PathLike[str]) -> None:
    """Trace this process until `stop_trace`, which writes to this folder."""
    jax.profiler.start_trace(log_dir)


def stop_trace() -> None:
    """End the trace and write it."""
    jax.profiler.stop_trace()


def trace(service_addr: str, logdir: str, duration_ms: int = 1000, delay_ms: int = 0, **options: object) -> None:
    """Trace this process for some time, and write to a folder; returns when that is done.

    `service_addr` is that of a server of this host, such as "localhost:9012": other hosts are traced by TensorBoard.
    `options` of PyTorch/XLA (attempts, levels, timeouts) are accepted; a trace of the own process needs none.
    """
    del options
    hosts = [address.rpartition(":")[0] for address in service_addr.split(",")]
    if not set(hosts) <= {*_HERE}:
        raise XlaError(
            f"trace: only this process can be traced, at an address such as localhost:9012, got {service_addr}; to "
            "trace other hosts, capture a profile in TensorBoard"
        )
    time.sleep(delay_ms / 1000)
    start_trace(logdir)
    try:
        time.sleep(duration_ms / 1000)
    finally:
        stop_trace()


def trace_detached(*args: Arg, **kwargs: Arg) -> threading.Thread:
    """`trace` in a thread while the program goes on; returns the thread."""
    thread = threading.Thread(target=trace, args=args, kwargs=kwargs, name="trace")
    thread.start()
    return thread


class Trace(jax.profiler.TraceAnnotation):
    """A named block in traces; `kwargs` are shown with it."""

    def __init__(self, name: str, **kwargs: Arg) -> None:
        super().__init__(name, **kwargs)
        self.name = name


class StepTrace(jax.profiler.StepTraceAnnotation):
    """A step of the program in traces, which is ended with the block; `step_num=` is its number."""

    def __init__(self, name: str, **kwargs: Arg) -> None:
        super().__init__(name, **kwargs)
        self.name = name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            mark_step()
        finally:
            super().__exit__(kind, error, traceback)


def trace_me(scope: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator: calls of the function are a block with this name in traces."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def traced(*args: P.args, **kwargs: P.kwargs) -> T:
            with Trace(scope):
                return function(*args, **kwargs)

        return traced

    return decorated
