"""Long buffers in chunks."""

from __future__ import annotations

import socket
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft._comm.transport.authentication import trusted_session_pair
from weft._comm.transport.chunks import Chunks, PendingFrame
from weft._comm.transport.pipe import CallPipe
from weft.errors import DistNetworkError

CHUNK, CUT = 1, 2
SIZE = 512 << 10


class Receiver:
    """Takes frames whose buffers come in chunks."""

    def __init__(self):
        self.chunks = Chunks(lambda size: np.full(size, 77, np.uint8))
        self.done = []
        self.errors = []

    def received(self, pipe, kind, number, body, buffers):
        try:
            if kind == CHUNK:
                parcel = self.chunks.take(pipe.main, number, body, buffers)
            else:
                parcel = self.chunks.claim(
                    PendingFrame(pipe, kind, number, body), [bytes(body)[:16], b""], iter(map(bytes, buffers))
                )
        except DistNetworkError as error:
            self.errors.append(str(error))
            return
        if parcel is not None:
            self.done.append((parcel.number, bytes(parcel.buffers[0]), parcel.buffers[1]))

    def lost(self, pipe):
        self.errors.append(pipe.close_reason)


class Way:
    """A way between a sender and a receiver, with lanes."""

    def __init__(self, lanes):
        self.receiver, self.chunks = Receiver(), Chunks(lambda size: np.empty(size, np.uint8))
        self.pairs = [self._pair()]
        for _ in range(lanes):
            self.pairs.append(self._pair(*self.pairs[0]))
        self.main.lanes = tuple(one for one, _ in self.pairs[1:])

    @property
    def main(self):
        return self.pairs[0][0]

    def _pair(self, main=None, far=None):
        (one, other), (near, away) = socket.socketpair(), trusted_session_pair()
        return (
            CallPipe(one, self.receiver, "far", near, None, main),
            CallPipe(other, self.receiver, "near", away, None, far),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in [pipe for pair in self.pairs for pipe in pair]:
            pipe.close("the test is over")
            pipe.free()

    def send(self, number, data):
        told = self.chunks.put(self.main, CHUNK, memoryview(data))
        self.main.put(CUT, number, told, [b"short"])

    def step(self, at):
        """Send and read some by one of the connections; whether anything came."""
        one, other = self.pairs[at]
        one.flush()
        return other.read(wait=False)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 3 * SIZE + 5), min_size=1, max_size=4),
    st.integers(0, 3),
    st.lists(st.integers(0, 3), max_size=30),
)
def test_buffers_come_whole_in_whatever_order_connections_are_read(sizes, lanes, order):
    sent = [(number, np.random.default_rng(number).bytes(size), b"short") for number, size in enumerate(sizes)]
    with Way(lanes) as way:
        for number, data, _ in sent:
            way.send(number, data)
        for at in order:
            way.step(at % (lanes + 1))
        while sum(way.step(at) for at in range(lanes + 1)):
            pass
        assert sorted(way.receiver.done) == sent
        assert not way.receiver.errors
        assert not any(way.receiver.chunks._partial.values())


def test_short_frames_pass_long_ones():
    with Way(0) as way:
        way.send(1, bytes(8 * SIZE))
        way.main.flush()
        way.main.put(CUT, 2, way.chunks.put(way.main, CHUNK, memoryview(b"x")), [b"short"])
        passed = way.main._unsent[-1]
        assert len(passed) < 100
        assert len(way.main._low_priority) > 1, "what is long still waits"
        while way.step(0):
            pass
        assert [number for number, *_ in way.receiver.done] == [1, 2]


def pair(*numbers):
    return struct.pack("<QQ", *numbers)


@pytest.mark.parametrize(
    ("frames", "error"),
    [
        ([(CHUNK, b"", [b"x"])], "it sent a malformed chunk"),
        ([(CHUNK, pair(0, 5), [])], "it sent a malformed chunk"),
        ([(CHUNK, pair(0, 5), [b""])], "it sent a chunk that lies outside of its buffer"),
        ([(CHUNK, pair(3, 5), [b"xyz"])], "it sent a chunk that lies outside of its buffer"),
        ([(CHUNK, pair(0, 0), [b"x"])], "it sent a buffer of 0 bytes, for which there is no memory"),
        ([(CHUNK, pair(0, 1 << 63), [b"x"])], f"it sent a buffer of {1 << 63} bytes, for which there is no memory"),
        (
            [(CHUNK, pair(0, 5), [b"xy"]), (CHUNK, pair(0, 6), [b"xy"])],
            "it sent a buffer of 5 bytes, and says that it has 6",
        ),
        ([(CHUNK, pair(0, 3), [b"xy"]), (CHUNK, pair(0, 3), [b"xy"])], "it sent a chunk twice"),
        ([(CUT, pair(7, 3), [b""]), (CUT, pair(7, 3), [b""])], "it sent two frames with the same buffer"),
        ([(CUT, b"12345", [b""])], "it sent a malformed frame"),
    ],
)
def test_what_cannot_be_is_refused(frames, error):
    with Way(0) as way:
        for kind, body, buffers in frames:
            way.main.put(kind, 7, body, buffers)
        while way.step(0):
            pass
        assert way.receiver.errors == [error]


def test_what_was_on_its_way_is_given_up_with_the_connection():
    with Way(0) as way:
        way.main.put(CHUNK, 7, pair(0, 9), [b"x"])
        way.step(0)
        far = way.pairs[0][1]
        assert list(way.receiver.chunks._partial) == [far]
        way.receiver.chunks.forget(far)
        assert not way.receiver.chunks._partial
