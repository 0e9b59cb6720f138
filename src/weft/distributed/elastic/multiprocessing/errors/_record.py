"""The decorator that writes an error file if the main function raises."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from weft._base.failing import report_failures_by
from weft.distributed.elastic.multiprocessing.errors._failure import NOT_AVAILABLE, ChildFailedError
from weft.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler
from weft.distributed.elastic.multiprocessing.errors.handlers import get_error_handler

_P = ParamSpec("_P")
_R = TypeVar("_R")
_RECORDED = "_weft_recorded"
_log = logging.getLogger(__name__)


def record(fn: Callable[_P, _R], error_handler: ErrorHandler | None = None) -> Callable[_P, _R | None]:
    """Decorate the main function of a program, so that an exception is written to the process's error file.

    The exception is raised again. For a `ChildFailedError`, the error file of the child that failed first is copied. An
    exit with code 0 returns None. An exception that an inner recorded function has written is not written again.
    """
    handler = error_handler or get_error_handler()

    @wraps(fn)
    def recorded(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        handler.initialize()
        try:
            with reported_by(handler):
                return fn(*args, **kwargs)
        except SystemExit as stop:
            if stop.code == 0:
                return None
            raise
        except Exception as error:
            record_once(error, handler)
            raise

    return recorded


@contextmanager
def reported_by(handler: ErrorHandler) -> Generator[None]:
    """Let the handler record errors in the block already when they make this rank leave, before others miss it."""

    def report(error: BaseException | None) -> None:
        handler.report(error)
        if outer is not None:
            outer(error)

    outer = report_failures_by(report)
    try:
        yield
    finally:
        report_failures_by(outer)
    handler.report(None)


def record_once(error: BaseException, handler: ErrorHandler) -> None:
    """Write an exception's error file, unless it is already written."""
    if getattr(error, _RECORDED, False):
        return
    setattr(error, _RECORDED, True)
    if not isinstance(error, ChildFailedError):
        handler.record_exception(error)
        return
    rank, failure = error.get_first_failure()
    if failure.error_file == NOT_AVAILABLE:
        _log.info("rank %s failed without an error file; decorate its main function with `record`", rank)
    else:
        handler.dump_error_file(failure.error_file, failure.exitcode)
