"""TLS between two ends of one process."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import trustme

from weft._comm.deadline import Deadline
from weft._comm.secure import Certificates, Secure
from weft.errors import DistNetworkError


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    made = authority.issue_cert("worker")
    made.private_key_and_cert_chain_pem.write_to_path(str(folder / "worker.pem"))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    return Certificates(*(str(folder / f"{name}.pem") for name in ("worker", "worker", "authority")))


@pytest.fixture
def sockets():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.fixture
def ends(certificates, sockets):
    def secure(sock, server):
        return Secure(sock, certificates.context(server=server), Deadline(60), server=server)

    with ThreadPoolExecutor(1) as threads:
        far = threads.submit(secure, sockets[1], True)
        near = secure(sockets[0], False)
        return near, far.result()


def test_what_is_sealed_can_be_opened_whole_and_in_pieces(ends):
    near, far = ends
    sent = bytes(range(256)) * 1000
    sealed = near.seal(sent) + near.seal(b"") + near.seal(b"end")
    assert sent[:100] not in sealed
    opened = [far.open(sealed[at : at + 1000]) for at in range(0, len(sealed), 1000)]
    assert b"".join(opened) == sent + b"end"
    assert near.open(near.socket.recv(1 << 16) + far.seal(b"answer")) == b"answer"  # the rest of the handshake first


def test_what_was_changed_or_comes_twice_is_refused(ends):
    near, far = ends
    sealed = near.seal(b"once")
    assert far.open(sealed) == b"once"
    with pytest.raises(DistNetworkError, match=r"^TLS fails: .*BAD_RECORD_MAC"):
        far.open(sealed)
    assert isinstance(far.seal(b"to nobody"), bytes)  # reading has told of it


def test_a_handshake_ends_at_its_deadline_however_slowly_the_other_side_speaks(certificates, sockets):
    near, far = sockets
    hello = ssl.MemoryBIO()
    client = certificates.context(server=False).wrap_bio(ssl.MemoryBIO(), hello)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    over = threading.Event()

    def drip():
        for byte in hello.read():
            near.sendall(bytes([byte]))
            if over.wait(0.05):
                return

    with ThreadPoolExecutor(1) as threads:
        dripping = threads.submit(drip)
        with pytest.raises(TimeoutError):
            Secure(far, certificates.context(server=True), Deadline(0.3), server=True)
        assert not dripping.done()
        over.set()
