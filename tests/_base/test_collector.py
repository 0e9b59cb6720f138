"""Stretches in which the garbage collector does not run."""

from __future__ import annotations

import gc
import weakref

from weft._base.collector import collector_paused


class Node:
    """An object that refers to itself: only the collector frees it."""

    def __init__(self):
        self.own = self


def test_nothing_is_collected_at_the_end_of_an_inner_stretch():
    with collector_paused:
        found = weakref.ref(Node())
        kept = [[] for _ in range(2 * gc.get_threshold()[0])]  # so many new objects that a collection is due
        with collector_paused:
            assert not gc.isenabled()
        assert found() is not None
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.collect()
    assert found() is None
    assert kept
