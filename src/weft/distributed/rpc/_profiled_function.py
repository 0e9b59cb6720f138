"""Functions that are profiled where they run, since the caller is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from threading import get_ident
from typing import Any

from weft._lazy.realize import flush_pending
from weft.autograd.profiler import profile
from weft.distributed.rpc._call_notes import NotedResult
from weft.distributed.rpc._service import Method, is_asynchronous
from weft.distributed.rpc._state import current_agent
from weft.futures import Future


class ProfiledFunction:
    """Calls a function, and returns its result as a `NotedResult`; `number` is that of the call at the caller.

    What its thread does is noted, and the calls that it makes. Of an asynchronous function, that is until its future is
    done.
    """

    def __init__(self, function: Callable[..., Any], number: int) -> None:
        update_wrapper(self, function, updated=())  # what a class has is not ours
        self._function, self._number = function, number

    def __reduce__(self) -> tuple[Any, ...]:
        return ProfiledFunction, (self._function, self._number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function
        if isinstance(function, Method):
            function = function.bound(current_agent())
        notes = profile(record_shapes=True, profile_memory=True, with_flops=True)
        thread = get_ident()
        notes.__enter__()
        try:
            result = function(*args, **kwargs)
            flush_pending()
        except BaseException:
            notes.__exit__()
            raise
        if not is_asynchronous(function) or not isinstance(result, Future):
            return self._noted(notes, thread, result)
        self._wrapped_async_rpc_function = function  # how `call_function` knows that the result comes later
        noted: Future[Any] = Future()
        result.add_done_callback(lambda done: noted._settle(partial(self._noted_later, notes, thread, done)))
        return noted

    def _noted_later(self, notes: profile, thread: int, done: Future[Any]) -> NotedResult:
        try:
            value = done.value()
        except BaseException:
            notes.__exit__()
            raise
        return self._noted(notes, thread, value)

    def _noted(self, notes: profile, thread: int, value: Any) -> NotedResult:
        notes.__exit__()
        return NotedResult(value, self._number, [event for event in notes.function_events if event.thread == thread])


_ProfiledFunction = ProfiledFunction
"""As which the package has it, which loads the profiler no earlier."""
