"""Events, their log, and the user's handler."""

from __future__ import annotations

import json
import logging
import os
import socket

import pytest

from weft.distributed.elastic import events
from weft.distributed.elastic.events.handlers import installed


def test_an_event_is_json():
    event = events.Event("test_event", events.EventSource.WORKER, metadata={"a": 1})
    text = '{"name": "test_event", "source": "WORKER", "timestamp": 0, "metadata": {"a": 1}}'
    assert event.serialize() == str(event) == text
    assert events.Event.deserialize(text) == event
    assert events.Event.deserialize(event) is event
    assert (
        events.Event("a", events.EventSource.AGENT).metadata is not events.Event("a", events.EventSource.AGENT).metadata
    )


def test_an_event_of_a_rendezvous_is_json():
    event = events.RdzvEvent("n", "run", "text", "host", 5, events.NodeState.FAILED, rank=1)
    assert events.RdzvEvent.deserialize(str(event)) == event
    assert json.loads(str(event))["node_state"] == "FAILED"
    assert events.RdzvEvent.deserialize(event) is event


def test_destinations():
    assert type(events.get_logging_handler()) is logging.NullHandler
    assert type(events.get_logging_handler("console")) is logging.StreamHandler
    assert type(events.get_logging_handler("dynamic_rendezvous")) is logging.NullHandler
    told = r"^no event destination is called 'nowhere'; there are console, dynamic_rendezvous, null$"
    with pytest.raises(KeyError, match=told):
        events.get_logging_handler("nowhere")
    with pytest.raises(KeyError, match=told):
        events.record(events.Event("e", events.EventSource.AGENT), "nowhere")
    with pytest.raises(TypeError, match=r"^events\.configure\(\): handler must be an EventHandler, got int$"):
        events.configure(3)


@pytest.fixture
def logged(monkeypatch):
    """What has been logged to the console and for rendezvous."""
    lines = []

    class Collect(logging.StreamHandler):
        def emit(self, record):
            lines.append(record.getMessage())

    collect = Collect()
    kinds = {"console": lambda: collect, "dynamic_rendezvous": lambda: collect, "null": logging.NullHandler}
    monkeypatch.setattr("weft.distributed.elastic.events.handlers._KINDS", kinds)
    from weft.distributed.elastic.events import handlers

    handlers._handler_for.cache_clear()
    yield lines
    handlers._handler_for.cache_clear()
    for destination in kinds:
        logging.getLogger(f"torchelastic-events-{destination}").removeHandler(collect)


def test_recording_logs_once(logged):
    event = events.Event("e", events.EventSource.AGENT)
    events.record(event, "console")
    events.record(event, "console")
    events.record(event)
    assert logged == [str(event)] * 2


def test_recording_a_rendezvous(logged):
    try:
        raise ValueError("seen")
    except ValueError:
        events.construct_and_record_rdzv_event("run", "text", events.NodeState.FAILED, rank=3)
    [line] = logged
    event = events.RdzvEvent.deserialize(line)
    assert (event.name, event.rank) == ("test_events.py:test_recording_a_rendezvous", 3)
    assert (event.hostname, event.pid) == (socket.gethostname(), os.getpid())
    assert event.error_trace.endswith("ValueError: seen\n")


def test_nobody_listens_to_a_rendezvous_by_default(capfd):
    events.construct_and_record_rdzv_event("run", "text", events.NodeState.INIT)
    events.record_rdzv_event(events.RdzvEvent("n", "run", "text", "host", 5, events.NodeState.INIT))
    assert capfd.readouterr() == ("", "")


def test_a_configured_handler_gets_events_of_every_destination(logged, caplog):
    class Own(events.EventHandler):
        def __init__(self):
            self.seen = []

        def record(self, event):
            self.seen.append(event.name)
            if event.name == "bad":
                raise ValueError("own fault")

    before = installed.handler
    assert type(before) is events.NullEventHandler
    own = Own()
    events.configure(own)
    try:
        for name, destination in (("a", "null"), ("bad", "console")):
            events.record(events.Event(name, events.EventSource.AGENT), destination)
    finally:
        events.configure(before)
    assert own.seen == ["a", "bad"]
    assert len(logged) == 1
    assert "the event handler Own failed" in caplog.text
