"""The first words on a connection: both sides prove the job's key, and then that they mean each other."""

from __future__ import annotations

from collections.abc import Callable

from weft._comm.deadline import Deadline
from weft._comm.key import MOST_PROOF_BYTES, prove
from weft._comm.wire import Connection, Frames, receive, send
from weft.errors import DistNetworkError

_MEANT = b"+"


def call_on(sock: Connection, key: bytes, words: str, deadline: Deadline) -> bool:
    """Say `words` to who listens there; whether it takes them. Errors as `prove`."""
    prove(sock, key, deadline, server=False)
    send(sock, words.encode(), deadline)
    return sock.recv(len(_MEANT)) == _MEANT  # no byte more: what follows is the stream's


def received(sock: Connection, key: bytes, take: Callable[[str], bool], deadline: Deadline) -> str | None:
    """What who calls says, where `take` takes it; None where it does not, or where the caller has no key."""
    try:
        prove(sock, key, deadline, server=True)
        words = receive(sock, Frames(MOST_PROOF_BYTES), deadline).decode()
        if take(words):
            sock.sendall(_MEANT)
            return words
    except (DistNetworkError, OSError, UnicodeDecodeError):
        pass  # the caller is told, or has gone
    return None
