"""TLS without a socket: it encrypts and decrypts bytes that others send and receive; both sides show a certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from weft._comm.deadline import Deadline
from weft._comm.transport.wire import CLOSED, seconds_until
from weft.errors import DistNetworkError, ValueRangeError

_READ = 1 << 16


class Certificates(NamedTuple):
    """Files in PEM: this process's certificate, its private key, and the authority that has signed those of all."""

    certificate: str
    private_key: str
    authority: str

    def context(self, *, server: bool) -> ssl.SSLContext:
        """The SSL context for a side of a connection; `ValueError` for files that cannot be used."""
        for path in self:
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise ValueRangeError(
                    f"TLS: {path!r} cannot be read: {error.strerror}; give files of a certificate, its private key and "
                    "the authority"
                ) from error
        tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        tls_context.minimum_version = ssl.TLSVersion.TLSv1_3
        tls_context.check_hostname = False  # workers are named by the job; the authority is the job's own
        tls_context.verify_mode = ssl.CERT_REQUIRED
        try:
            tls_context.load_cert_chain(self.certificate, self.private_key, password="")  # nobody is asked for one
            tls_context.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise ValueRangeError(
                f"TLS: {', '.join(self)} cannot be used: {error}; they must be in PEM, the key unencrypted and the "
                "certificate's"
            ) from error
        return tls_context


class Tls:
    """One side of a TLS connection: first the handshake, and then the cipher of a pipe."""

    def __init__(self, context: ssl.SSLContext, *, server: bool) -> None:
        self.ready = False
        """Whether the handshake is complete."""
        self._lock = threading.Lock()  # reading may have to write, and the other way round
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server)

    def do_handshake(self, data: bytes) -> bytes:
        """Go on with the handshake by received bytes; returns the bytes to send. `DistNetworkError` if it fails."""
        self._in.write(data)
        try:
            self._tls.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise TlsError(_failure(error), self._out.read()) from error
        return self._out.read()

    def seal(self, data: bytes | bytearray | memoryview) -> bytes:
        """The encrypted bytes; none once TLS has failed, which reading reports."""
        with self._lock:
            with suppress(ssl.SSLError):
                self._tls.write(data)
            return self._out.read()

    def open(self, data: bytes, most: int | None = None) -> bytes:
        """The decrypted bytes, as far as they are complete; `DistNetworkError` if they are forged.

        With `most`, at most so many of them; the rest comes with the next call.
        """
        pieces: list[bytes] = []
        with self._lock:
            self._in.write(data)
            try:
                while piece := self._tls.read(_READ if most is None else most):
                    pieces.append(piece)
                    if most is not None:
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise DistNetworkError(_failure(error)) from error
        return b"".join(pieces)


def _failure(error: ssl.SSLError) -> str:
    return f"TLS fails: {error.reason or error}; all workers need certificates of one authority"


class TlsError(DistNetworkError):
    """A handshake has failed; `alert` are the bytes to send to the other side."""

    def __init__(self, text: str, alert: bytes) -> None:
        super().__init__(text)
        self.alert = alert


class TlsClient:
    """A client's TLS connection over a socket, for the proof of the key; `tls` is the cipher from then on.

    `DistNetworkError` where the handshake fails, `TimeoutError` where it takes until the deadline.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, deadline: Deadline) -> None:
        self.tls = Tls(context, server=False)
        self._sock = sock
        self._deadline = deadline
        try:
            hello = self.tls.do_handshake(b"")
            while not self.tls.ready:
                self._send(hello)
                hello = self.tls.do_handshake(self._received())
            self._send(hello)
        except TlsError as error:
            self._send(error.alert)
            raise

    def settimeout(self, seconds: float | None) -> None:
        self._deadline = Deadline(seconds)

    def getpeername(self) -> Any:
        return self._sock.getpeername()

    def sendall(self, data: bytes) -> None:
        self._send(self.tls.seal(data))

    def recv(self, size: int) -> bytes:
        """Up to `size` received bytes, at least one."""
        data = self.tls.open(b"", size)
        while not data:
            data = self.tls.open(self._received(), size)
        return data

    def _send(self, data: bytes) -> None:
        self._sock.settimeout(seconds_until(self._deadline))
        self._sock.sendall(data)

    def _received(self) -> bytes:
        self._sock.settimeout(seconds_until(self._deadline))
        data = self._sock.recv(_READ)
        if not data:
            raise DistNetworkError(CLOSED)
        return data
