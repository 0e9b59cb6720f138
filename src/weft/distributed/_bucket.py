"""Buckets: groups of gradients that are sent together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def buckets_of(sizes: Sequence[int], kinds: Sequence[Hashable], limits: Sequence[int]) -> list[list[int]]:
    """The indices of entries, by bucket. Entries of one kind are added in order until a bucket reaches its byte limit.

    The first bucket of a kind has the limit `limits[0]`, the next `limits[1]`, and so on; the last limit is repeated.
    Buckets are ordered by their first entries.
    """
    open_buckets: dict[Hashable, list[int]] = {}
    filled: dict[Hashable, int] = {}
    counts: dict[Hashable, int] = {}
    buckets: list[list[int]] = []
    for at, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        bucket = open_buckets.get(kind)
        if bucket is None:
            bucket = open_buckets[kind] = []
            filled[kind] = 0
            buckets.append(bucket)
        bucket.append(at)
        filled[kind] += size
        number = counts.get(kind, 0)
        # The first bucket is small, so that the exchange can begin early; as in PyTorch.
        if filled[kind] >= limits[min(number, len(limits) - 1)]:
            del open_buckets[kind]
            counts[kind] = number + 1
    return buckets
