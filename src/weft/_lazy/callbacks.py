"""Users' functions that running programs call, in this thread or in one of XLA's."""

from __future__ import annotations

import re
from functools import lru_cache, wraps
from itertools import count

from weft._base.interrupts import uninterrupted
from weft._base.pending import Pending
from weft._base.state import Ambient, leave, replace_ambient
from weft._base.types import AnyArray, AnyCallable
from weft._lazy.signature import Signature
from weft.ops._jax import equations_of

_MOST_FAILURES = 64  # of programs that run at the same time in as many threads
_MARK = "weft-failure-"

# no cell: errors on their way from a program that runs
_failures: dict[str, BaseException] = {}
_numbers = count()


@lru_cache(maxsize=4096)  # key: the signature
def calls_back(signature: Signature) -> bool:
    """Whether what computes an application calls a function of Python, which a user has written."""
    return any(equation.primitive.name.endswith("callback") for equation in equations_of(signature.trace.closed))


def called_back(function: AnyCallable) -> AnyCallable:
    """A function of a user's as one that a running program calls: it has an ambient state of its own.

    On the list of pending values of the thread that runs the program, it would compute what the program is about to
    give, and wait for checks whose codes the program is computing: for itself. Signals may end it, as any function of a
    user's. What it raises reaches the caller of the program by `failure_behind`.
    """

    @wraps(function)
    def call(*arrays: object) -> AnyArray:
        token = replace_ambient(Ambient(Pending(watched=False, within=True), grad=False))
        try:
            with uninterrupted.suspended():
                return function(*arrays)
        except BaseException as error:
            mark = f"{_MARK}{next(_numbers)};"
            while len(_failures) >= _MOST_FAILURES:
                _failures.pop(next(iter(_failures)), None)
            _failures[mark] = error
            raise RuntimeError(f"{type(error).__name__}: {error} ({mark})") from None
        finally:
            leave(token)

    return call


def failure_behind(error: BaseException) -> BaseException | None:
    """The exception of a user's function for which a program has failed; XLA's own has no more than its text."""
    mark = re.search(f"{_MARK}[0-9]+;", str(error))
    return None if mark is None else _failures.pop(mark[0], None)
