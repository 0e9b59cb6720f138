"""Line search for the strong Wolfe conditions (Nocedal and Wright, 2006, algorithms 3.5 and 3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

# The constants of PyTorch's `_strong_wolfe`: c1, c2 (Nocedal and Wright advise these for quasi-Newton methods), and the
# least width of a bracket times the slope.
_DECREASE = 1e-4
_CURVATURE = 0.9
_SMALLEST = 1e-9


class Point(NamedTuple):
    """A point of a line: its distance, the loss, the gradient as a tensor, and the derivative along the line."""

    t: float
    loss: float
    gradient: Any
    slope: float


def strong_wolfe(line: Callable[[float], Point], start: Point, t: float, speed: float, most: int) -> tuple[Point, int]:
    """The best point found by about `most` evaluations, of which the first is at `t`, and the number of evaluations.

    `speed` is the largest change of a parameter per unit of `t`.
    """
    best, other, evaluations = _bracket(line, start, t, most)
    if other is None:
        return best, evaluations
    return _zoom(line, start, (best, other), speed, most, evaluations)


def _falls_short(point: Point, start: Point) -> bool:
    return point.loss > start.loss + _DECREASE * point.t * start.slope


def _is_flat(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -_CURVATURE * start.slope


def _bracket(line: Callable[[float], Point], start: Point, t: float, most: int) -> tuple[Point, Point | None, int]:
    """Two points with a good one between them, or one good point and None; and the number of evaluations."""
    before, here = start, line(t)
    for tried in range(most):
        if _falls_short(here, start) or (tried > 1 and here.loss >= before.loss):
            return before, here, tried + 1
        if _is_flat(here, start):
            return here, None, tried + 1
        if here.slope >= 0:
            return before, here, tried + 1
        step = here.t - before.t
        t = _minimum(before, here, here.t + 0.01 * step, here.t * 10)
        before, here = here, line(t)
    return start, here, max(most, 0) + 1


def _zoom(
    line: Callable[[float], Point], start: Point, ends: tuple[Point, Point], speed: float, most: int, evaluations: int
) -> tuple[Point, int]:
    """Narrow a bracket until a good point is found, or until it cannot be narrowed."""
    low, high = ends if ends[0].loss <= ends[1].loss else ends[::-1]
    stuck = False
    while evaluations <= most and abs(high.t - low.t) * speed >= _SMALLEST:
        left, right = sorted((low, high), key=lambda point: point.t)
        t = _minimum(left, right, left.t, right.t)
        # A trial point near an end hardly shrinks the bracket. Two of them in a row are moved inwards, as in PyTorch's
        # LBFGS.
        margin = 0.1 * (right.t - left.t)
        near_an_end = min(right.t - t, t - left.t) < margin
        if near_an_end and (stuck or not left.t < t < right.t):
            t = right.t - margin if abs(t - right.t) < abs(t - left.t) else left.t + margin
            near_an_end = False
        stuck = near_an_end
        new = line(t)
        evaluations += 1
        if _falls_short(new, start) or new.loss >= low.loss:
            high = new
            if high.loss < low.loss:
                low, high = high, low
            continue
        if _is_flat(new, start):
            return new, evaluations
        if new.slope * (high.t - low.t) >= 0:
            high = low
        low = new
    return low, evaluations


def _minimum(a: Point, b: Point, lowest: float, highest: float) -> float:
    """The minimum, within bounds, of the cubic through two points and slopes; if there is none, the bounds' middle."""
    middle = (lowest + highest) / 2
    if a.t == b.t:
        return middle
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    # Also for NaN, which a loss that overflows gives.
    if not square >= 0:
        return middle
    d2 = math.sqrt(square)
    below = b.slope - a.slope + 2 * d2
    if below == 0:
        return middle
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / below)
    return min(max(t, lowest), highest)
