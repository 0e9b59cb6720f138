"""What a worker must put up with: wrong greetings and wrong frames, drawn at random.

What carries a bomb, a pickle that makes a folder where it is read, has no proof, a wrong tag, or is cut. Frames with a
right tag and a wrong content are harmless to read: who has the key may run anything, so nothing is done against him.
"""

from __future__ import annotations

import os
import pickle
import random
import socket
import struct
from contextlib import suppress
from itertools import accumulate, pairwise

from weft._comm.deadline import Deadline
from weft._comm.shared_memory.memory import SharedMemory
from weft._comm.transport import tags, wire
from weft._comm.transport.authentication import Service, authenticate
from weft._comm.transport.pipe import MOST_BYTES
from weft.distributed.rpc._pending_deletes import delete_forks
from weft.distributed.rpc._protocol import Frame, Mark
from weft.errors import PeerGoneError

SECONDS = 60
_READ = [Frame.CALL, Frame.REQUEST, Frame.UNCOUNTED]
_HEAD = tags.SIZE + 16


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def frame(outgoing, kind, body, sizes=(), buffers=b"", *, size=None, number=1):
    """A frame with the next tag of `outgoing`, or with a wrong one for None."""
    length = 8 * len(sizes) + len(body) + len(buffers) if size is None else size
    head = struct.pack("<IQHH", length, number, kind, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
    parts = [head, body, *(buffers[at:end] for at, end in pairwise(accumulate(sizes, initial=0)))]
    tag = bytes(tags.SIZE) if outgoing is None else outgoing.next(parts)
    return b"".join((tag, head, body, buffers))


def connected(endpoint, family):
    """A connection to where a worker listens."""
    sock = socket.socket(family)
    sock.settimeout(SECONDS)
    unix = family == socket.AF_UNIX
    sock.connect(f"\0weft-{endpoint['token']}" if unix else (endpoint["address"], endpoint["port"]))
    return sock


def service_of(endpoint):
    return Service("rpc", endpoint["token"])


def proved(endpoint, family, key, who="99 stranger"):
    """The same, by somebody who has the key, and what tags his frames."""
    sock = connected(endpoint, family)
    session = authenticate(sock, key, service_of(endpoint), Deadline(SECONDS), who)
    sock.settimeout(SECONDS)
    return sock, session.outgoing


def drained(sock):
    """Wait until the other side has read all, and has closed the connection."""
    with sock:
        try:
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        except TimeoutError:
            raise AssertionError("the worker has kept the connection") from None
        except OSError:
            pass  # it closed before it had read all


class _Sent(Exception):
    pass


class _Altered:
    """A connection of which all that matters is the first thing sent, and that is another one."""

    def __init__(self, sock, alter):
        self.settimeout, self.recv, self.getpeername = sock.settimeout, sock.recv, sock.getpeername
        self._sock, self._alter = sock, alter

    def sendall(self, data):
        self._sock.sendall(self._alter(data))
        raise _Sent


class Greetings:
    """Wrong first words. Each is given a connection, and says one thing."""

    def __init__(self, endpoint, key, bomb, seed):
        self._random = random.Random(seed)
        self._service = service_of(endpoint)
        self._key = key
        self._bomb = frame(None, Frame.CALL, pickle.dumps((Bomb(bomb), (), {})))
        self._old = b""
        self._ways = [
            self._garbage,
            self._length,
            self._cut,
            self._changed,
            self._replay,
            self._reflection,
            self._other_key,
            self._words,
            lambda sock: sock.sendall(self._bomb),
            lambda sock: None,
        ]

    def say(self, sock):
        with suppress(_Sent, ConnectionError):
            self._random.choice(self._ways)(sock)

    def _garbage(self, sock):
        some = self._random.randbytes(self._random.randrange(256))
        sock.sendall(self._random.choice([some, some * 10, wire.frame(some), b"GET / HTTP/1.1\r\n\r\n" + some]))

    def _length(self, sock):
        length = self._random.choice([0, 1, 63, 65, 255, 256, 257, 1 << 16, 1 << 30, (1 << 32) - 1])
        sock.sendall(struct.pack("<I", length) + self._random.randbytes(self._random.randrange(300)))

    def _proof(self, sock, alter, key=None):
        authenticate(_Altered(sock, alter), key or self._key, self._service, Deadline(SECONDS), "99 stranger")

    def _cut(self, sock):
        self._proof(sock, lambda proof: proof[: self._random.randrange(len(proof))])

    def _changed(self, sock):
        self._proof(sock, lambda proof: _flipped(proof, self._random.randrange(8 * 4, 8 * len(proof))))

    def _replay(self, sock):
        """A proof that was right on another connection."""

        def exchange(proof):
            old, self._old = self._old, proof
            return old or proof[:-1]

        self._proof(sock, exchange)

    def _reflection(self, sock):
        sock.sendall(sock.recv(1 << 10))

    def _other_key(self, sock):
        self._proof(sock, lambda proof: proof + self._bomb, b"another key")

    def _words(self, sock):
        """A right proof, with nonsense instead of who calls, or for another listener."""
        said = self._random.choice(["", "99", "x y", "-1 x", "\0", "99 x" * 20])
        other = self._service._replace(listener=self._service.listener[:-1])
        with suppress(PeerGoneError):
            authenticate(sock, self._key, self._random.choice([self._service, other]), Deadline(SECONDS), said)


class Frames:
    """Wrong frames of somebody who has proved the key."""

    def __init__(self, bomb, seed):
        self._random = random.Random(seed)
        self._outgoing = None  # what tags the frames of the present connection
        self._bomb = pickle.dumps((Bomb(bomb), (), {}))
        self._call = pickle.dumps((len, ([1, 2],), {}))
        self._control = pickle.dumps((delete_forks.name, ([((7, 7), (7, 7))],)))
        self._memory = SharedMemory.create(1 << 16)
        self._last = [
            lambda: self._random.randbytes(self._random.randrange(_HEAD, 200)),
            lambda: _flipped(self._armed(), self._random.randrange(8 * (_HEAD + len(self._bomb)))),
            lambda: self._armed()[: self._random.randrange(1, _HEAD + len(self._bomb))],
            self._length,
            self._huge,
            self._sizes,
            self._unknown,
            self._note,
            self._loan,
            self._chunk,
        ]

    def close(self):
        self._memory.close()

    def _frame(self, *args, **kwargs):
        return frame(self._outgoing, *args, **kwargs)

    def _armed(self):
        return self._frame(Frame.CALL, self._bomb)

    def some(self, most, outgoing):
        """Frames of which the last one ends the connection, and how many they are."""
        self._outgoing = outgoing
        found = [self._read() for _ in range(self._random.randrange(most))]
        found.append(self._random.choice(self._last)())
        return b"".join(found), len(found)

    # --- frames that are read, and refused alone ---

    def _read(self):
        kind, number = self._random.choice([*_READ, Frame.ANSWER, Frame.ERROR, Frame.RETURN]), 1 << 40
        if kind in (Frame.ANSWER, Frame.ERROR, Frame.RETURN):  # nobody has asked for it, and nothing was lent
            return self._frame(kind, self._random.randbytes(self._random.randrange(99)), number=number)
        whole = self._call if kind == Frame.CALL else self._control
        content = pickle.dumps(self._random.choice([None, 1, (), (1, 2), "text", {}, ("no such", ()), (len, (), {})]))
        wrong = [whole[: self._random.randrange(len(whole))], content, b"\xff" * self._random.randrange(99)]
        sizes = [8] * self._random.randrange(3)
        return self._frame(kind, self._random.choice(wrong), sizes, bytes(sum(sizes)), number=number)

    # --- frames that end the connection ---

    def _length(self):
        """A length that is not that of what follows."""
        wrong = bytearray(self._armed())
        wrong[tags.SIZE : tags.SIZE + 4] = struct.pack(
            "<I", self._random.choice([0, 1, len(wrong) - _HEAD + self._random.randrange(1, 1000)])
        )
        return bytes(wrong)

    def _huge(self):
        size = self._random.choice([MOST_BYTES, MOST_BYTES + 1, 1 << 31, (1 << 32) - 1, MOST_BYTES - 1])
        return self._frame(Frame.CALL, self._call, size=size)

    def _sizes(self):
        """Buffers of terabytes, and more of them than there is room for."""
        sizes = [self._random.choice([1 << 40, (1 << 63) + 5, (1 << 64) - 1, 1 << 32])] * self._random.randrange(1, 9)
        found = self._frame(Frame.CALL, self._call, sizes)
        return found if self._random.randrange(2) else found[: _HEAD - 2] + b"\xff\xff" + found[_HEAD:]

    def _unknown(self):
        kind = self._random.choice([k for k in range(256) if k not in set(Frame)] + [1 << 15, Frame.CALL | Mark.TRACED])
        return self._frame(kind, self._call)

    def _note(self):
        unknown = pickle.dumps(("no such", ()))
        kind = self._random.choice([Frame.NOTE, Frame.DEVICES])
        return self._frame(kind, self._random.choice([b"", self._control[:-5], b"\xff" * 9, unknown, pickle.dumps(1)]))

    def _loan(self):
        handle, size = self._memory.handle, b"%d" % (1 << 16)
        pid, fd, token = handle.split()
        told = self._random.choice(
            [
                [b"nonsense"],
                [handle],
                [handle, size, b"-1", b"5"],
                [handle, size, b"%d" % (1 << 70), b"5"],
                [handle, b"%d" % (1 << 50), b"1", b"5"],
                [handle, size, b"x", b"5"],
                [b"1 2 3 4", size, b"1", b"5"],
                [b" ".join((pid, fd, b"zz")), size, b"1", b"5"],
                [b"\xff \xff \xff", size, b"1", b"5"],
                [b" ".join((pid, b"1", token)), size, b"1", b"5"],
                [b" ".join((pid, fd, token[::-1])), size, b"1", b"5"],
            ]
        )
        loan = self._random.choice([wire.pack(wire.pack(*told)), wire.pack(b"", b""), b"\xff" * 9, b""])
        return self._frame(Frame.CALL | Mark.LENT, self._call, [len(loan)] if loan else [], loan)

    def _chunk(self):
        """Chunks that lie nowhere, and frames whose buffers cannot be found."""
        at, size, data = self._random.choice(
            [
                (0, 0, b"x"),
                (0, 1 << 50, b"x"),
                (0, (1 << 64) - 1, b"x"),
                (5, 5, b"x"),
                (1 << 63, 1 << 40, b"x"),
                (0, 5, b"xyzxyz"),
                (0, 5, b""),
            ]
        )
        place = self._random.choice([struct.pack("<QQ", at, size), b"", b"\xff" * 15])
        if self._random.randrange(2):
            return self._frame(Frame.CHUNK, place, [len(data)], data)
        return self._frame(
            Frame.CALL | Mark.CUT, self._call, [9], self._random.choice([b"\xff" * 9, wire.pack(b"12345")])
        )


def _flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
