"""Mutual authentication: two peers of a connection prove to each other that they know the job's key.

The server sends a nonce. The client answers with its own nonce, the service and listener that it wants, a text that
identifies it, and an HMAC-SHA256 of all this; the server answers with an HMAC, too. So a proof is valid only for this
listener and this connection: an attacker in the middle can forward it, but not use it elsewhere. Later frames have
tags, with keys that are derived from the job's key and both nonces, so they cannot be forged either. Nothing is
encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import NamedTuple

from weft._comm.deadline import Deadline
from weft._comm.transport.sockets import address_text
from weft._comm.transport.tags import Tags
from weft._comm.transport.wire import Connection, pack, receive_alone, send, unpack
from weft.errors import DistNetworkError, JobKeyError, PeerGoneError

MOST_PROOF_BYTES = 1024
"""The longest frame of a peer that is not authenticated."""

PROOF_SECONDS = 10.0
"""How long a server waits for a peer's proof."""

_MAGIC = b"weft protocol 2\n"
_OLD = b"weft-job-key-"  # the first bytes of the first version of the protocol
_NONCE = 32
_WELCOME, _REFUSED = b"welcome", b"refused"


class Service(NamedTuple):
    """A listening service: its kind, such as `store`, and a port, or a token that only its clients know."""

    kind: str
    listener: str

    def __str__(self) -> str:
        return f"{self.kind} {self.listener}"


def store_service(port: int) -> Service:
    """The service of the store that listens at a port."""
    return Service("store", str(port))


class Session(NamedTuple):
    """The tags for the frames of an authenticated connection, in each direction."""

    outgoing: Tags
    incoming: Tags


@dataclass
class HandshakeReply:
    """The server's answer to a client's proof.

    payload   the frame to send to the client
    session   the session of the connection, if the proof is right
    identity  the text that the client has sent with its proof
    refusal   why the proof was refused, if it was
    """

    payload: bytes
    session: Session | None = None
    identity: str = ""
    refusal: str = ""


class ServerHandshake:
    """The server's side: send `greeting`, pass the client's frame to `answer`, and send the payload of the reply."""

    def __init__(self, key: bytes, service: Service) -> None:
        self._key = key
        self._service = service
        self._nonce = secrets.token_bytes(_NONCE)
        self.greeting = _MAGIC + self._nonce

    def answer(self, payload: bytes) -> HandshakeReply:
        """The reply to the client's frame; `DistNetworkError` if that is not a proof."""
        nonce, called, identity, proof = _fields(payload, 4)
        if not hmac.compare_digest(proof, _mac(self._key, b"client", self._nonce, nonce, called, identity)):
            return HandshakeReply(pack(_REFUSED), refusal="it has another job key")
        if called != str(self._service).encode():
            text = f"it called {called.decode(errors='replace')!r}, and this is {str(self._service)!r}"
            return HandshakeReply(pack(_REFUSED, text.encode()), refusal=text)
        transcript = (self._nonce, nonce, called, identity)
        welcome = pack(_WELCOME, _mac(self._key, b"server", *transcript))
        return HandshakeReply(welcome, _session(self._key, transcript, server=True), identity.decode(errors="replace"))


def authenticate(sock: Connection, key: bytes, service: Service, deadline: Deadline, identity: str = "") -> Session:
    """Prove the key to the service at the other end, send it `identity`, and verify its proof.

    `JobKeyError`, which names the peer, if it has another key or does not speak this version of the protocol;
    `PeerGoneError` if it is another listener; `DistNetworkError` if the connection is lost; `TimeoutError` if there is
    no answer by the deadline.
    """
    server_nonce, client_nonce = (
        _nonce_of(sock, receive_alone(sock, MOST_PROOF_BYTES, deadline)),
        secrets.token_bytes(_NONCE),
    )
    transcript = (server_nonce, client_nonce, str(service).encode(), identity.encode())
    send(sock, pack(*transcript[1:], _mac(key, b"client", *transcript)), deadline)
    answer = unpack(receive_alone(sock, MOST_PROOF_BYTES, deadline)) or [b""]
    if answer[0] == _REFUSED and len(answer) > 1:
        raise PeerGoneError(f"{peer_name(sock)} is another listener: {answer[1].decode(errors='replace')}")
    if not hmac.compare_digest(answer[-1], _mac(key, b"server", *transcript)):
        raise wrong_key(sock)
    return _session(key, transcript, server=False)


def _nonce_of(sock: Connection, greeting: bytes) -> bytes:
    if greeting.startswith(_OLD):
        raise JobKeyError(f"{peer_name(sock)} speaks an older protocol of Weft's; install one version on all hosts")
    if len(greeting) != len(_MAGIC) + _NONCE or not greeting.startswith(_MAGIC):
        raise JobKeyError(f"{peer_name(sock)} does not speak Weft's protocol; is another program at this port?")
    return greeting[len(_MAGIC) :]


def _fields(payload: bytes, count: int) -> list[bytes]:
    fields = unpack(payload)
    if len(fields) != count:
        raise DistNetworkError("it sent no proof; all hosts need one version of Weft")
    return fields


def wrong_key(sock: Connection) -> JobKeyError:
    """The error for a peer with another key. `weft run` derives keys from the job's name, so only that may differ."""
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
    return "a process of this host" if isinstance(address, (str, bytes)) else address_text(*address[:2])


def _session(key: bytes, transcript: tuple[bytes, ...], *, server: bool) -> Session:
    of_server, of_client = (Tags(_mac(key, b"tags of the " + side, *transcript)) for side in (b"server", b"client"))
    return Session(of_server, of_client) if server else Session(of_client, of_server)


def trusted_session_pair() -> tuple[Session, Session]:
    """Sessions for both ends of a connection that nobody else can reach, so that no proof is needed."""
    one, other = secrets.token_bytes(_NONCE), secrets.token_bytes(_NONCE)
    return Session(Tags(one), Tags(other)), Session(Tags(other), Tags(one))


def _mac(key: bytes, role: bytes, *transcript: bytes) -> bytes:
    """The HMAC of all exchanged fields and the role, so that an answer cannot be reflected to its sender."""
    return hmac.digest(key, _MAGIC + pack(role, *transcript), hashlib.sha256)
