"""Frames through pipes."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft._comm.transport.authentication import trusted_session_pair
from weft._comm.transport.pipe import MOST_BYTES, CallPipe


class Keeper:
    """Keeps what comes."""

    def __init__(self):
        self.frames = []
        self.losses = 0
        self.handled = []  # the exceptions that are being handled when a pipe is lost

    def received(self, pipe, kind, number, body, buffers):
        self.frames.append((kind, number, bytes(body), [bytes(one) for one in buffers]))

    def lost(self, pipe):
        self.losses += 1
        self.handled.append(sys.exception())


class Pair:
    """Two pipes that lead to each other."""

    def __init__(self):
        (one, other), (here, there) = socket.socketpair(), trusted_session_pair()
        self.near, self.far = Keeper(), Keeper()
        self.pipes = CallPipe(one, self.near, "far", here), CallPipe(other, self.far, "near", there)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in self.pipes:
            pipe.close("the test is over")
            pipe.free()

    def exchange(self):
        """Send and receive until all has come."""
        near, far = self.pipes
        while near.backlog:
            near.flush()
            far.read(wait=False)
        while far.read(wait=False) and far.close_reason is None:
            pass


frames = st.lists(
    st.tuples(
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=300),
        st.lists(st.one_of(st.binary(max_size=50), st.just(bytes(range(256)) * 1000)), max_size=3),
    ),
    max_size=5,
)


@given(frames)
def test_frames_come_as_they_were_sent(sent):
    with Pair() as pair:
        for kind, number, body, buffers in sent:
            pair.pipes[0].put(kind, number, body, [memoryview(one) for one in buffers])
        pair.exchange()
        assert pair.far.frames == sent


def test_sending_never_waits():
    with Pair() as pair:
        long = bytes(1 << 24)
        pair.pipes[0].put(1, 2, b"body", [memoryview(long)])
        pair.pipes[0].flush()
        assert pair.pipes[0].backlog
        pair.pipes[0].put(3, 4, b"")
        pair.exchange()
        assert pair.far.frames == [(1, 2, b"body", [long]), (3, 4, b"", [])]


def test_a_frame_over_the_limit_is_not_sent():
    class Long(bytes):
        def __len__(self):
            return MOST_BYTES + 1

    with Pair() as pair, pytest.raises(ValueError, match=f"longer than the {MOST_BYTES} that one may have"):
        pair.pipes[0].put(1, 2, b"", [Long()])


OVER = f"it sent a frame of {2**32 - 1} bytes; {MOST_BYTES} are allowed"


@pytest.mark.parametrize(
    ("sent", "why"),
    [(b"\xff" * 32, OVER), (bytes(16) + b"\xff" * 100, OVER), (bytes(32), "it sent a malformed frame")],
)
def test_what_is_no_frame_ends_the_pipe(sent, why):
    with Pair() as pair:
        pair.pipes[0]._sock.sendall(sent)
        pair.exchange()
        assert (pair.pipes[1].close_reason, pair.far.losses, pair.far.frames) == (why, 1, [])


@given(st.data())
def test_a_frame_that_was_changed_is_not_handed_on(data):
    with Pair() as pair:
        pair.pipes[0].put(1, 2, b"the body", [memoryview(b"a buffer")])
        (frame,) = pair.pipes[0]._unsent
        at = data.draw(st.integers(0, len(frame) - 1))
        changed = bytearray(frame)
        changed[at] ^= data.draw(st.integers(1, 255))
        pair.pipes[0]._sock.sendall(changed)
        pair.exchange()
        assert not pair.far.frames


def send(sock, data):
    with suppress(OSError):  # the other side may have seen enough
        sock.sendall(data)


@pytest.mark.parametrize("long", [b"", bytes(1 << 17)])
@pytest.mark.parametrize("kept", [[0, 0], [1], [1, 0]])
def test_frames_that_come_twice_or_too_early_or_not_at_all_end_the_pipe(kept, long):
    """Who stands between two peers can leave a connection as it is, or end it."""
    with Pair() as pair:
        frames = []
        for number in range(2):
            pair.pipes[0].put(1, number, b"the body", [long])
            frames.append(b"".join(pair.pipes[0]._unsent))
            pair.pipes[0]._unsent.clear()
        sender = threading.Thread(target=send, args=(pair.pipes[0]._sock, b"".join(frames[n] for n in kept)))
        sender.start()
        while pair.pipes[1].close_reason is None:
            pair.pipes[1].read(wait=True)
        sender.join()
        assert pair.pipes[1].close_reason == "it sent a malformed frame"
        assert [number for _, number, _, _ in pair.far.frames] == ([0] if kept == [0, 0] else [])


def test_the_end_of_a_peer_is_told_once():
    with Pair() as pair:
        pair.pipes[0].put(1, 2, b"last")
        pair.pipes[0].flush()
        pair.pipes[0].close("this side is done")
        while pair.pipes[1].close_reason is None:
            pair.pipes[1].read(wait=True)
        pair.pipes[1].close("again")
        assert (pair.pipes[1].close_reason, pair.far.losses, pair.near.losses) == ("it has closed the connection", 1, 1)
        assert pair.far.frames == [(1, 2, b"last", [])]


def test_nothing_is_being_handled_when_the_loss_of_the_peer_is_told():
    """Errors of calls would have it as their context, and with it all frames of the thread that reads."""
    with Pair() as pair:
        near, far = pair.pipes
        far.close("it leaves")
        while near.close_reason is None:
            near.read(wait=True)
        assert pair.near.handled == [None]
