"""Which of two passes must run first. A constraint tells of passes `a` and `b` whether `a` may run before `b`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weft.errors import OutOfRangeError

Pass: TypeAlias = Callable[..., Any]
Constraint: TypeAlias = Callable[[Pass, Pass], bool]


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """The constraint that `this` runs before `that`."""
    return lambda a, b: not (a == that and b == this)


def check_order(passes: Sequence[Pass], constraints: Sequence[Constraint]) -> None:
    """Raise `RuntimeError` if passes are in an order that a constraint excludes."""
    for constraint in constraints:
        for i, a in enumerate(passes):
            for j, b in enumerate(passes[i + 1 :], i + 1):
                if not constraint(a, b):
                    raise OutOfRangeError(
                        f"pass schedule constraint violated. {a} may not run before {b}, but found {a} at index {i} "
                        f"and {b} at index {j} in pass list. Change their order, or call solve_constraints()"
                    )


def ordered(passes: Sequence[Pass], constraints: Sequence[Constraint]) -> list[Pass]:
    """The passes in an order that all constraints allow; `RuntimeError` if there is none."""
    if not constraints:
        return list(passes)
    count = range(len(passes))
    earlier = {
        at: {
            other
            for other in count
            # A pass that stands in the list twice needs no order with itself.
            if passes[other] != passes[at] and not _allow(passes[at], passes[other], constraints)
        }
        for at in count
    }
    ready = deque([at for at in count if not earlier[at]])
    order: list[int] = []
    while ready:
        first = ready.popleft()
        order.append(first)
        for at in count:
            if first in earlier[at]:
                earlier[at].remove(first)
                ready.extend([] if earlier[at] else [at])
    if len(order) < len(passes):
        circle = [passes[at] for at in count if at not in order]
        raise OutOfRangeError(f"Circular dependency detected within the following passes: {circle}")
    return [passes[at] for at in order]


def _allow(a: Pass, b: Pass, constraints: Sequence[Constraint]) -> bool:
    return all(constraint(a, b) for constraint in constraints)
