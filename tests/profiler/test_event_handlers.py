"""Events, and statistics over windows of time, as in PyTorch."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from weft.monitor import (
    STAT_EVENT,
    Aggregation,
    Event,
    Stat,
    TensorboardEventHandler,
    log_event,
    register_event_handler,
    unregister_event_handler,
)


@pytest.fixture
def events():
    found = []
    handle = register_event_handler(found.append)
    yield found
    unregister_event_handler(handle)


def test_handlers_get_events_until_they_are_removed():
    found = []
    handle = register_event_handler(found.append)
    event = Event("started", datetime.now(), {"step": 1, "host": "a"})
    log_event(event)
    unregister_event_handler(handle)
    unregister_event_handler(handle)
    log_event(event)
    assert found == [event]


def test_a_full_window_is_logged(events):
    stat = Stat("loss", list(Aggregation), timedelta(days=10000), max_samples=2)
    assert set(stat.get().values()) == {0.0}
    stat.add(1)
    assert (stat.name, stat.count, events) == ("loss", 1, [])
    stat.add(4)
    stat.add(9)  # the window is full
    figures = {"value": 4.0, "mean": 2.5, "count": 2.0, "sum": 5.0, "max": 4.0, "min": 1.0}
    assert stat.count == 0
    assert {key.name.lower(): value for key, value in stat.get().items()} == figures
    assert [(event.name, event.data) for event in events] == [
        (STAT_EVENT, {f"loss.{name}": value for name, value in figures.items()})
    ]


def test_a_window_that_is_over_is_logged(events):
    stat = Stat("loss", [Aggregation.SUM], timedelta(microseconds=1))
    stat.add(1)
    stat.add(2)
    assert events[0].data == {"loss.sum": 1.0}


def test_figures_are_written_as_scalars():
    written = []

    class Writer:
        def add_scalar(self, name, value, walltime):
            written.append((name, value, walltime))

    handler = TensorboardEventHandler(Writer())
    time = datetime.now()
    handler(Event(STAT_EVENT, time, {"loss.mean": 0.5}))
    handler(Event("started", time, {"step": 1}))
    assert written == [("loss.mean", 0.5, time.timestamp())]


def test_windows_have_a_size():
    with pytest.raises(TypeError, match=r"^Stat: window_size must be a timedelta above zero, got 3$"):
        Stat("loss", [], 3)


@pytest.mark.parametrize("wrong", [("n", 1.5, {}), (1, datetime.now(), {}), ("n", datetime.now(), {"a": None})])
def test_events_are_of_known_types(wrong):
    with pytest.raises(TypeError, match=r"^Event: "):
        Event(*wrong)


def test_mistakes_are_refused_at_once(events):
    stat = Stat("s", [Aggregation.SUM], timedelta(hours=1))
    for call, argument in ((log_event, "text"), (register_event_handler, None), (stat.add, "1")):
        with pytest.raises(TypeError, match="expected a"):
            call(argument)
    assert not events
