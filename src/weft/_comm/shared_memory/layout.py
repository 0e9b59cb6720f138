"""The layout of a group's shared memory. Offsets of counters are in 64-bit words, all others in bytes."""

from __future__ import annotations

LINE = 64  # bytes of a cache line; two ranks never write to the same one
CALL = 128  # bytes for the text of a rank's call
CHUNK = 4 << 20  # bytes that a rank sends per phase; they should fit into the cache
_TEXT = 1024  # bytes for the text of a rank's failure
_PAGE = 4096
_RING = (64 << 10, 1 << 20)  # smallest and largest size of the ring between a pair of ranks
_RINGS = 256 << 20  # bytes for the rings of all pairs, if that is enough


class RegionLayout:
    """The offsets for a group of `size` ranks. Untouched pages cost nothing, so regions have their full size."""

    def __init__(self, size: int, start: int) -> None:
        least, most = _RING
        self.size = size
        self.ring_bytes = min(most, max(least, _RINGS // size**2 // _PAGE * _PAGE))
        self._area = _rounded(2 * CHUNK + LINE * (size + 1), _PAGE)
        self._counts = _rounded(16 * size, LINE)
        self.broken = _rounded(start, LINE) // 8  # the counter with the first rank that has failed, counted from 1
        self._cells = 8 * self.broken + LINE
        self._ring_cells = self._cells + 3 * LINE * size
        self._texts = self._ring_cells + 2 * LINE * size**2
        self._calls = self._texts + _TEXT * size
        self._count_fields = self._calls + 2 * CALL * size
        self._areas = _rounded(self._count_fields + 2 * self._counts * size, _PAGE)
        self._rings = self._areas + 2 * self._area * size
        self.end = self._rings + self.ring_bytes * size**2

    def step(self, rank: int) -> int:
        """The counter of phases of a rank."""
        return (self._cells + 3 * LINE * rank) // 8

    def state(self, rank: int) -> int:
        """Whether a rank has failed or left."""
        return self.step(rank) + LINE // 8

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return self.step(rank) + 2 * LINE // 8

    def written(self, source: int, target: int) -> int:
        """The number of bytes that `source` has written into its ring to `target`."""
        return (self._ring_cells + 2 * LINE * (source * self.size + target)) // 8

    def consumed(self, source: int, target: int) -> int:
        """The number of bytes that `target` has consumed from that ring."""
        return self.written(source, target) + LINE // 8

    def text(self, rank: int) -> slice:
        """The text of a rank's failure."""
        return _span(self._texts, _TEXT, rank)

    def call(self, rank: int, half: int) -> slice:
        """The text of a rank's call, in the phases of one half."""
        return _span(self._calls, CALL, 2 * rank + half)

    def counts(self, rank: int, half: int) -> slice:
        """For each peer the bytes that a rank sends, then those that it receives, as 64-bit integers."""
        place = _span(self._count_fields, self._counts, 2 * rank + half)
        return slice(place.start, place.start + 16 * self.size)

    def area(self, rank: int, half: int) -> slice:
        """The data of a rank in the phases of one half: a chunk, and results of at most one more."""
        return _span(self._areas, self._area, 2 * rank + half)

    def ring(self, source: int, target: int) -> slice:
        """The ring for messages from `source` to `target`."""
        return _span(self._rings, self.ring_bytes, source * self.size + target)


def _rounded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _span(start: int, length: int, index: int) -> slice:
    return slice(start + length * index, start + length * (index + 1))
