"""TLS on a connection whose bytes are sent and received elsewhere; both sides show a certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from weft._comm.deadline import Deadline
from weft.errors import DistNetworkError, ValueRangeError

T = TypeVar("T")

_READ = 1 << 16


class Certificates(NamedTuple):
    """Files in PEM: this process's certificate, its private key, and the authority that has signed those of all."""

    certificate: str
    private_key: str
    authority: str

    def context(self, *, server: bool) -> ssl.SSLContext:
        """What a side of a connection needs; `ValueError` for files that cannot be used."""
        for path in self:
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise ValueRangeError(
                    f"TLS: {path!r} cannot be read: {error.strerror}; give files of a certificate, its private key and "
                    "the authority"
                ) from error
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname = False  # workers are named by the job; the authority is the job's own
        made.verify_mode = ssl.CERT_REQUIRED
        try:
            made.load_cert_chain(self.certificate, self.private_key, password="")  # nobody is asked for one
            made.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise ValueRangeError(
                f"TLS: {', '.join(self)} cannot be used: {error}; they must be in PEM, the key unencrypted and the "
                "certificate's"
            ) from error
        return made


class Secure:
    """A socket over TLS, as far as greetings need it, and then the cipher of its pipe."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, deadline: Deadline, *, server: bool) -> None:
        self.socket = sock
        self._lock = threading.Lock()  # reading may have to write, and the other way round
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server)
        self._deadline = deadline
        self._until(self._tls.do_handshake)

    # --- the cipher ---

    def seal(self, data: bytes | bytearray | memoryview) -> bytes:
        """The bytes that travel; none once TLS has failed, which reading tells of."""
        with self._lock:
            with suppress(ssl.SSLError):
                self._tls.write(data)
            return self._out.read()

    def open(self, data: bytes) -> bytes:
        """What travelling bytes say, as far as it is complete; `DistNetworkError` where they are forged."""
        found = []
        with self._lock:
            self._in.write(data)
            try:
                while piece := self._tls.read(_READ):
                    found.append(piece)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise DistNetworkError(f"TLS fails: {error}") from error
        return b"".join(found)

    # --- the socket ---

    def settimeout(self, seconds: float | None) -> None:
        self._deadline = Deadline(seconds)
        self.socket.settimeout(seconds)

    def getpeername(self) -> tuple:
        return self.socket.getpeername()

    def sendall(self, data: bytes) -> None:
        self.socket.sendall(self.seal(data))

    def recv(self, size: int) -> bytes:
        return self._until(lambda: self._tls.read(size))

    def close(self) -> None:
        self.socket.close()

    def _until(self, step: Callable[[], T]) -> T:
        """Repeat a step until TLS has what it needs, or the deadline is over, however slowly the other side speaks."""
        while True:
            try:
                found = step()
            except ssl.SSLWantReadError:
                self._send()
                data = self.socket.recv(_READ)
                if not data:
                    raise DistNetworkError("the connection was closed by the other side") from None
                self._in.write(data)
            except ssl.SSLError as error:
                self._send()
                raise DistNetworkError(
                    f"TLS fails: {error.reason or error}; all workers need certificates of one authority"
                ) from error
            else:
                self._send()
                return found

    def _send(self) -> None:
        left = self._deadline.left()
        self.socket.settimeout(None if left is None else max(left, 1e-3))
        self.socket.sendall(self._out.read())
