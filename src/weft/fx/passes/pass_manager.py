"""Running functions over any object in a fixed order, which constraints check; `infra.pass_manager` also finds one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Concatenate, ParamSpec, TypeVar

from weft._base.types import AnyCallable, Result
from weft.errors import OutOfRangeError, PreconditionError
from weft.fx.passes._constraints import Constraint, Pass, check_order
from weft.fx.passes._constraints import this_before_that_pass_constraint as this_before_that_pass_constraint

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_log = logging.getLogger(__name__)


def inplace_wrapper(fn: AnyCallable) -> Callable[Concatenate[T, P], T]:
    """A function that changes its first argument as a pass: it returns that argument."""

    @wraps(fn)
    def wrapped(gm: T, *args: P.args, **kwargs: P.kwargs) -> T:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped


def log_hook(fn: Callable[P, R], level: int = logging.INFO) -> Callable[P, R]:
    """A function whose results are logged. To be applied within `inplace_wrapper`."""

    @wraps(fn)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        result = fn(*args, **kwargs)
        _log.log(level, "Ran pass %s\t Return value: %s", fn, result)
        return result

    return wrapped


def loop_pass(
    base_pass: Callable[[T], T], n_iter: int | None = None, predicate: Callable[[T], bool] | None = None
) -> Callable[[T], T]:
    """A pass that runs another one `n_iter` times, or for as long as `predicate` of the object is true."""
    if (n_iter is None) == (predicate is None):
        raise PreconditionError("loop_pass: exactly one of n_iter and predicate must be given")
    if n_iter is not None and n_iter <= 0:
        raise OutOfRangeError(f"loop_pass must be given positive int n_iter, got {n_iter}")

    @wraps(base_pass)
    def wrapped(source: T) -> T:
        runs = 0
        while runs < n_iter if n_iter is not None else predicate is not None and predicate(source):
            source = base_pass(source)
            runs += 1
        return source

    return wrapped


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """The constraint that what `these` wraps runs before what `those` wraps, such as passes in a `loop_pass`."""
    return lambda a, b: not (unwrap(a) == those and unwrap(b) == these)


class PassManager:
    """Runs passes, functions that return what the next one gets, after the constraints have been checked."""

    def __init__(self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None) -> None:
        self.passes: list[Pass] = passes or []
        self.constraints: list[Constraint] = constraints or []
        self._validated = False

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """A manager of these passes."""
        return cls(passes)

    def add_pass(self, _pass: Pass) -> None:
        """Add a pass after the others."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Add a constraint: whether of two passes the first may run before the second."""
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes: list[str]) -> None:
        """Remove the passes of these names."""
        self.passes = [one for one in self.passes if one.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Replace the passes that have the name of `_target`."""
        self.passes = [_replacement if one.__name__ == _target.__name__ else one for one in self.passes]
        self._validated = False

    def validate(self) -> None:
        """Raise `RuntimeError` if the passes are not in an order that the constraints allow."""
        if not self._validated:
            check_order(self.passes, self.constraints)
        self._validated = True

    def __call__(self, source: object) -> Result:
        """The object after all passes."""
        self.validate()
        for one in self.passes:
            source = one(source)
        return source
