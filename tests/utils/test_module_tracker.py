"""Which modules are being called."""

from threading import Thread

import pytest

import weft as torch
from weft import nn
from weft.utils.module_tracker import ModuleTracker


class Looking(nn.Module):
    """Notes the tracker's parents when it is called, and when a gradient arrives."""

    def __init__(self, tracker, seen):
        super().__init__()
        self.tracker, self.seen = tracker, seen

    def forward(self, x):
        self.seen.append((set(self.tracker.parents), self.tracker.is_bw))
        y = x * 2
        y.register_hook(lambda grad: self.seen.append((set(self.tracker.parents), self.tracker.is_bw)))
        return y


def nested(tracker, seen):
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(Looking(tracker, seen)))


def test_forward_and_backward_passes():
    tracker, seen = ModuleTracker(), []
    model = nested(tracker, seen)
    with tracker:
        assert tracker.parents == {"Global"}
        model(torch.ones(1, 2)).sum().backward()
        assert (tracker.parents, tracker.is_bw) == ({"Global"}, False)
    inside = {"Global", "Sequential", "Sequential.1", "Sequential.1.0"}
    assert seen == [(inside, False), (inside, True)]


def test_a_module_that_raises_is_left():
    class Broken(nn.Module):
        def forward(self, x):
            raise KeyError(1)

    with ModuleTracker() as tracker:
        with pytest.raises(KeyError):
            nn.Sequential(Broken())(torch.ones(1))
        assert tracker.parents == {"Global"}


def test_other_threads_are_not_followed():
    seen = []
    with ModuleTracker() as tracker:
        model = nested(tracker, seen)
        thread = Thread(target=model, args=(torch.ones(1, 2),))
        thread.start()
        thread.join()
        assert [parents for parents, _ in seen] == [{"Global"}]


def test_a_tracker_is_used_one_block_at_a_time():
    tracker = ModuleTracker()
    with tracker, pytest.raises(RuntimeError, match="in use already"), tracker:
        pass
    with tracker:
        assert tracker.parents == {"Global"}
