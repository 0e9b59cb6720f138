"""TLS over bytes in memory, which others send and receive, and a client over a socket; both sides have certificates."""

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
    """Paths of PEM files: this process's certificate, its private key, and the authority that signs them all."""

    certificate: str
    private_key: str
    authority: str

    def context(self, *, server: bool) -> ssl.SSLContext:
        """The SSL context for one side of a connection; `ValueError` if the files cannot be used."""
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
        tls_context.check_hostname = False  # a worker's name is not a host name; the authority is the job's own
        tls_context.verify_mode = ssl.CERT_REQUIRED
        try:
            tls_context.load_cert_chain(self.certificate, self.private_key, password="")  # never ask the user
            tls_context.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise ValueRangeError(
                f"TLS: {', '.join(self)} cannot be used: {error}; they must be in PEM, the key unencrypted and the "
                "certificate's"
            ) from error
        return tls_context


class Tls:
    """One side of a TLS connection over bytes in memory. After the handshake it can be the cipher of a pipe."""

    def __init__(self, context: ssl.SSLContext, *, server: bool) -> None:
        self.ready = False
        """Whether the handshake is complete."""
        self._lock = threading.Lock()  # OpenSSL may write while it reads, and read while it writes
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server)

    def do_handshake(self, data: bytes) -> bytes:
        """Continue the handshake with received bytes; returns the bytes to send. `TlsError` if it fails."""
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
        """The encrypted bytes; none once TLS has failed, as `open` reports the failure."""
        with self._lock:
            # The sender is no place for the error, since the reader closes the pipe with the reason.
            with suppress(ssl.SSLError):
                self._tls.write(data)
            return self._out.read()

    def open(self, data: bytes, most: int | None = None) -> bytes:
        """Take received bytes, and return what can be decrypted so far; `DistNetworkError` if they are forged.

        With `most`, at most that many bytes are returned; the next call returns the rest.
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
    """A handshake has failed; `alert` holds the bytes to send to the other side."""

    def __init__(self, text: str, alert: bytes) -> None:
        super().__init__(text)
        self.alert = alert


class TlsClient:
    """A client's TLS connection over a blocking socket, on which the key is proved; `tls` is the cipher after that.

    The constructor does the handshake: `DistNetworkError` if it fails, `TimeoutError` if it passes the deadline.
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
        """Set the deadline of all later calls, in seconds from now; None means no deadline."""
        self._deadline = Deadline(seconds)

    def getpeername(self) -> Any:
        """The address of the other side."""
        return self._sock.getpeername()

    def sendall(self, data: bytes) -> None:
        """Encrypt and send the data."""
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
