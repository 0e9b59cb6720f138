"""Frames and fields."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft._comm.deadline import Deadline
from weft._comm.transport.wire import Frames, frame, pack, receive, send, unpack
from weft.errors import DistNetworkError


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_fields_come_back(fields):
    assert unpack(pack(*fields)) == fields


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_an_error(payload):
    try:
        fields = unpack(payload)
    except DistNetworkError:
        return
    assert pack(*fields) == payload


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 7))
def test_frames_are_put_together_from_pieces(payloads, size):
    frames, found = Frames(1000), []
    stream = b"".join(map(frame, payloads))
    for at in range(0, len(stream), size):
        frames.feed(stream[at : at + size])
        while (payload := frames.next()) is not None:
            found.append(payload)
    assert found == payloads


def test_a_frame_over_the_limit_is_refused_before_it_is_there():
    frames = Frames(10)
    frames.feed(frame(b"x" * 11)[:4])
    with pytest.raises(DistNetworkError, match=r"^a frame of 11 bytes is longer than the 10 allowed here$"):
        frames.next()


def test_over_a_socket():
    near, far = socket.socketpair()
    with near, far:
        send(near, b"one", Deadline(None))
        send(near, b"", Deadline(5))
        frames = Frames(10)
        assert [receive(far, frames, Deadline(5)), receive(far, frames, Deadline(None))] == [b"one", b""]
        with pytest.raises(TimeoutError):
            receive(far, frames, Deadline(0.01))
        near.close()
        with pytest.raises(DistNetworkError, match=r"^the connection was closed by the other side$"):
            receive(far, frames, Deadline(5))
        with pytest.raises(DistNetworkError, match=r"^the connection was closed by the other side$"):
            send(far, b"one", Deadline(5))
