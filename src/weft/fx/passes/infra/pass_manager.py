"""Running passes over a graph module in an order that fits their constraints."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from weft._base.types import AnyCallable
from weft.errors import ArgumentError, OutOfRangeError
from weft.fx.graph_module import GraphModule
from weft.fx.passes._constraints import Constraint, check_order, ordered
from weft.fx.passes._constraints import this_before_that_pass_constraint as this_before_that_pass_constraint
from weft.fx.passes.infra.pass_base import PassResult
from weft.nn._module import Module

_log = logging.getLogger(__name__)


def pass_result_wrapper(fn: AnyCallable) -> Callable[..., PassResult | None]:
    """A function over modules as a pass: it counts as having changed the module that it returns, or that it got."""

    @wraps(fn)
    def wrapped(gm: Module) -> PassResult | None:
        result = fn(gm)
        if result is None or isinstance(result, Module):
            return PassResult(gm if result is None else result, True)
        return result if isinstance(result, PassResult) else None

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


class PassManager:
    """Runs passes, callables that take a module and return a `PassResult`, in an order that constraints allow.

    A constraint tells of two passes whether the first may run before the second. All passes are run up to `steps`
    times, until none changes the module. With `run_checks_after_each_pass` the function of `add_checks` is called
    after each pass, besides once before the first.
    """

    def __init__(
        self,
        passes: list[Callable[..., PassResult | None]] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes: list[Callable[..., PassResult | None]] = passes or []
        self.constraints: list[Constraint] = constraints or []
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self.check: Callable[[Module], None] = lambda module: None
        self._validated = False

    def add_pass(self, _pass: Callable[..., PassResult | None]) -> None:
        """Add a pass after the others."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Add a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """Raise `RuntimeError` if the passes are not in an order that the constraints allow."""
        if not self._validated:
            check_order(self.passes, self.constraints)
        self._validated = True

    def solve_constraints(self) -> None:
        """Sort the passes so that the constraints allow their order; `RuntimeError` if none is allowed."""
        self.passes = ordered(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[[Module], None]) -> None:
        """Let a function of the module check it; it raises if something is wrong."""
        count = len(inspect.signature(check).parameters)
        if count != 1:
            raise ArgumentError(
                f"PassManager check function should only take in one variable, a module; this one takes {count}"
            )
        self.check = check

    def __call__(self, module: Module) -> PassResult:
        """Run the passes over a module. Raises `RuntimeError` from the error of a pass, saying which it was."""
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        overall = False
        for _ in range(self.steps):
            modified = False
            for at in range(len(self.passes)):
                module, changed = self._run(at, module)
                modified = modified or changed
            overall = overall or modified
            if not modified:
                break
        return PassResult(module, overall)

    def _run(self, at: int, module: Module) -> tuple[Module, bool]:
        """The module after the pass at an index, and whether it was changed."""
        name = _name_of(self.passes[at])
        _log.debug("Running pass '%s'", name)
        try:
            result: Any = self.passes[at](module)
            if not hasattr(result, "graph_module"):
                raise ArgumentError(
                    f"The result of the pass {name} should be type PassResult, got {type(result)}. Please wrap it with "
                    "pass_result_wrapper()"
                )
            changed = result.graph_module
            if isinstance(changed, GraphModule):
                _log.debug("Graph after pass '%s': %s", name, changed.graph)
                changed.recompile()
            if self.run_checks_after_each_pass:
                self.check(changed)
            return changed, bool(result.modified)
        # One error for all passes, which says what had run before: a graph that one pass has spoilt mostly fails in a
        # later one.
        except Exception as error:
            previous = [_name_of(one) for one in self.passes[:at]]
            raise OutOfRangeError(
                f"An error occurred when running the '{name}' pass after the following passes: {previous}: {error}"
            ) from error


def _name_of(one: Callable[..., object]) -> str:
    return one.__name__ if inspect.isfunction(one) else type(one).__name__
