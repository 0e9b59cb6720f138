"""The job's key, and how two peers prove to each other that they have it.

Each side draws a nonce, and sends an HMAC-SHA256 of its role and both nonces. The roles keep an answer from being sent
back to where it came from. The proof says who is there when a connection starts; it does not hide what follows.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
from pathlib import Path

from weft._comm.deadline import Deadline
from weft._comm.sockets import address_text
from weft._comm.wire import Connection, Frames, receive, send
from weft.errors import DistNetworkError, JobKeyError

MOST_PROOF_BYTES = 256
"""The longest frame of a peer that has not proved the key."""

PROOF_SECONDS = 10.0
"""How long a server waits for a peer's proof."""

_MAGIC = b"weft-job-key-1\n"
_NONCE = 32
_LEAST_BYTES = 16  # of a key
_REFUSED = b"refused"


def job_key() -> bytes:
    """The key of this job: WEFT_JOB_KEY, the file that WEFT_JOB_KEY_FILE names, or the user's own.

    The user's own is kept in `~/.cache/weft/job.key` and made on first use, so that processes of one user trust each
    other without being told. `DistNetworkError` when a file cannot be read, is another user's or open to others, and
    when the key is shorter than 16 bytes.
    """
    if text := os.environ.get("WEFT_JOB_KEY"):
        return _checked(text.encode(), "WEFT_JOB_KEY")
    if name := os.environ.get("WEFT_JOB_KEY_FILE"):
        return _read(Path(name))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return _own(cache / "weft" / "job.key")


def _checked(key: bytes, place: str) -> bytes:
    """The key, unless somebody could guess it: who has seen one proof can try keys as fast as they are hashed."""
    if len(key) < _LEAST_BYTES:
        raise DistNetworkError(
            f"the job's key in {place} has {len(key)} bytes, and needs at least {_LEAST_BYTES}; make one with "
            "`openssl rand -hex 32`"
        )
    return key


def _read(path: Path) -> bytes:
    """The key in a file, which must be as ssh wants those of its users: theirs, and closed to others."""
    try:
        with open(path, "rb") as file:
            _check_owner(os.fstat(file.fileno()), str(path))
            key = file.read().strip()
    except OSError as error:
        raise DistNetworkError(f"the job's key cannot be read: {error}; set WEFT_JOB_KEY, or mend the file") from error
    return _checked(key, repr(str(path)))


def _check_owner(found: os.stat_result, path: str) -> None:
    if found.st_uid != (me := os.geteuid()):
        raise DistNetworkError(
            f"the job's key in {path!r} belongs to user {found.st_uid}, and this process is user {me}'s; make a file "
            "of your own, or set WEFT_JOB_KEY"
        )
    if found.st_mode & 0o077:
        raise DistNetworkError(
            f"the job's key in {path!r} is open to others (mode {found.st_mode & 0o777:04o}); write a new key there, "
            f"and close it: chmod 600 {shlex.quote(path)}"
        )


def _own(path: Path) -> bytes:
    """The user's key. It is linked into place when whole, so that racing processes all read the first one's."""
    if not path.exists():
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_hex(32).encode())
            try:
                os.link(part, path)
            except FileExistsError:
                pass  # another process was faster
            finally:
                part.unlink()
        except OSError as error:
            raise DistNetworkError(f"the user's key cannot be written: {error}; set WEFT_JOB_KEY instead") from error
    return _read(path)


class ServerProof:
    """The server's side: send `greeting`, hand the client's frame to `answer`, and send what it returns."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._nonce = secrets.token_bytes(_NONCE)
        self.greeting = _MAGIC + self._nonce

    def answer(self, payload: bytes) -> tuple[bytes, bool]:
        """What to send, and whether the client has proved the key."""
        nonce, proof = payload[:_NONCE], payload[_NONCE:]
        if not hmac.compare_digest(proof, _mac(self._key, b"client", self._nonce, nonce)):
            return _REFUSED, False
        return _mac(self._key, b"server", self._nonce, nonce), True


def prove(sock: Connection, key: bytes, deadline: Deadline, *, server: bool) -> None:
    """Prove the key to the peer of a connected socket, and have it prove it in turn.

    `DistNetworkError` naming the peer when it has another key, is no peer of Weft's, or has gone; `TimeoutError` when
    it is silent until the deadline.
    """
    frames = Frames(MOST_PROOF_BYTES)
    if server:
        _prove_as_server(sock, frames, key, deadline)
    else:
        _prove_as_client(sock, frames, key, deadline)


def _prove_as_server(sock: Connection, frames: Frames, key: bytes, deadline: Deadline) -> None:
    proof = ServerProof(key)
    send(sock, proof.greeting, deadline)
    answer, proved = proof.answer(receive(sock, frames, deadline))
    send(sock, answer, deadline)
    if not proved:
        raise _wrong_key(sock)


def _prove_as_client(sock: Connection, frames: Frames, key: bytes, deadline: Deadline) -> None:
    greeting = _greeting(sock, frames, deadline)
    theirs, ours = greeting[len(_MAGIC) :], secrets.token_bytes(_NONCE)
    send(sock, ours + _mac(key, b"client", theirs, ours), deadline)
    if not hmac.compare_digest(receive(sock, frames, deadline), _mac(key, b"server", theirs, ours)):
        raise _wrong_key(sock)


def _greeting(sock: Connection, frames: Frames, deadline: Deadline) -> bytes:
    greeting = receive(sock, frames, deadline)
    if len(greeting) != len(_MAGIC) + _NONCE or not greeting.startswith(_MAGIC):
        raise JobKeyError(f"{peer_name(sock)} does not speak Weft's protocol; is another program at this port?")
    return greeting


def _wrong_key(sock: Connection) -> JobKeyError:
    """The error; `weft run` derives keys from the name of the job, so that names may be what differs."""
    return JobKeyError(
        f"{peer_name(sock)} has another job key; give all processes of a job the same WEFT_JOB_KEY (or "
        "WEFT_JOB_KEY_FILE), and all nodes the same --rdzv-id"
    )


def peer_name(sock: Connection) -> str:
    """The address of the other side, for messages."""
    try:
        address = sock.getpeername()
    except OSError:
        return "a peer that has gone"
    return address_text(*address[:2]) if isinstance(address, tuple) else "a process of this host"


def _mac(key: bytes, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    return hmac.new(key, _MAGIC + role + b"\n" + server_nonce + client_nonce, hashlib.sha256).digest()
