"""Where a long list of recorded operators is cut, so that a loop is computed by equal programs."""

from __future__ import annotations

from weft._base import config
from weft._base.types import Arg

_CHUNK = 96  # operators in a program cut from a repeating stretch
_LONGEST = 1024  # operators in a program cut from a very long list that does not repeat


def chunk_sizes(origins: list[Arg], least: int) -> list[int]:
    """The sizes of the chunks in which a list is computed: one if it does not repeat and is not very long.

    What lies before the repetition (a loop that a signal has left in the middle of an iteration, say) is cut for
    itself. Planning one program of 20,000 operators takes a second, in which no signal is handled.
    """
    start, end, size = _repeating(origins, least)
    if not start and size == len(origins):
        whole, rest = divmod(size, _LONGEST)
        return [size] if size < config.NODE_CAP else [*[_LONGEST] * whole, *[rest] * bool(rest)]
    before = chunk_sizes(origins[:start], least) if start > _LONGEST else [start] * bool(start)
    return [*before, *[size] * ((end - start) // size)]


def _repeating(origins: list[Arg], least: int) -> tuple[int, int, int]:
    """(start, end, size): from `start` to `end`, equal runs of `size` operators follow each other.

    It looks for a period of the list's middle half, else of its end, and extends it both ways. If neither has `least`
    repetitions, the run is the whole list.
    """
    n = len(origins)
    for start, end in ((n // 4, 3 * n // 4), (3 * n // 4, n)):
        period = _period(origins[start:end])
        if period * least <= end - start:
            break
    else:
        return 0, n, n
    while start and origins[start - 1] is origins[start - 1 + period]:
        start -= 1
    while end < n and origins[end] is origins[end - period]:
        end += 1
    size = period * max(1, _CHUNK // period)
    return start, end - (end - start) % size, size


def _period(origins: list[Arg]) -> int:
    """The shortest period of a list, by Knuth, Morris and Pratt's failure function."""
    failure = [0] * len(origins)
    k = 0
    for i in range(1, len(origins)):
        while k and origins[i] is not origins[k]:
            k = failure[k - 1]
        k += origins[i] is origins[k]
        failure[i] = k
    return len(origins) - failure[-1]
