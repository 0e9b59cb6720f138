"""Publishing metrics."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import wraps

from weft._base.types import AnyCallable, Arg, Result
from weft.distributed.elastic.metrics._handlers import ConsoleMetricHandler as ConsoleMetricHandler
from weft.distributed.elastic.metrics._handlers import MetricData, MetricHandler, NullMetricHandler
from weft.errors import ArgumentError

Function = AnyCallable


class MetricsConfig:
    """Parameters for `initialize_metrics`."""

    __slots__ = ("params",)

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = {} if params is None else params


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """A hook for platforms that set up metrics; it does nothing."""


class _Handlers:
    default: MetricHandler = NullMetricHandler()

    def __init__(self) -> None:
        self.by_group: dict[str, MetricHandler] = {}


_handlers = _Handlers()


def configure(handler: object, group: str | None = None) -> None:
    """Send the metrics of a group to a handler; without a group, those of all groups without their own handler."""
    if not isinstance(handler, MetricHandler):
        raise ArgumentError(f"metrics.configure(): handler must be a MetricHandler, got {type(handler).__name__}")
    if group is None:
        _handlers.default = handler
    else:
        _handlers.by_group[group] = handler


class MetricStream:
    """Passes the metrics of a group to its handler."""

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name = group_name
        self.handler = handler

    def add_value(self, metric_name: str, metric_value: float) -> None:
        """Publish one point."""
        self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))


def getStream(group: str) -> MetricStream:
    """The stream to the handler that a group has now."""
    return MetricStream(group, _handlers.by_group.get(group, _handlers.default))


def put_metric(metric_name: str, metric_value: float, metric_group: str = "torchelastic") -> None:
    """Publish one point. The group `torchelastic` is used by the library."""
    getStream(metric_group).add_value(metric_name, metric_value)


def prof(fn: Function | None = None, group: str = "torchelastic") -> AnyCallable:
    """Decorate a function, so that it publishes its success or failure and its duration. Takes a group, or nothing.

    The metrics are `NAME.success` or `NAME.failure` (each 1) and `NAME.duration.ms`. NAME is `Class.method`, or
    `module.function` with the last part of the module's name.
    """
    return _measured(_metric_name, group) if fn is None else _measured(_metric_name, group)(fn)


def profile(group: str | None = None) -> Callable[[Function], Function]:
    """Decorate a function as `prof` does, but NAME is only the function's name. Deprecated."""
    warnings.warn("Deprecated, use `@prof` instead", FutureWarning, stacklevel=2)
    return _measured(lambda function: function.__name__, group)


def publish_metric(metric_group: str, metric_name: str, metric_value: float) -> None:
    """Publish one point. Deprecated."""
    message = "Deprecated, use `put_metric(metric_group)(metric_name, metric_value)` instead"
    warnings.warn(message, FutureWarning, stacklevel=2)
    put_metric(metric_name, metric_value, metric_group)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Milliseconds since a time given in seconds since the epoch."""
    return int((time.time() - start_time_in_seconds) * 1000)


def _measured(name_of: Callable[[Function], str], group: Arg) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        name = name_of(function)

        @wraps(function)
        def measured(*args: Arg, **kwargs: Arg) -> Result:
            start = time.time()
            try:
                result = function(*args, **kwargs)
                put_metric(f"{name}.success", 1, group)
            except Exception:
                put_metric(f"{name}.failure", 1, group)
                raise
            finally:
                put_metric(f"{name}.duration.ms", get_elapsed_time_ms(start), group)
            return result

        return measured

    return decorate


def _metric_name(function: Function) -> str:
    if "." in function.__qualname__ or not function.__module__:
        return function.__qualname__
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
