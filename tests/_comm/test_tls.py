"""TLS between two ends of one process."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
import trustme

from weft._comm.deadline import Deadline
from weft._comm.transport import sockets
from weft._comm.transport.acceptor import Acceptor
from weft._comm.transport.authentication import Service, authenticate
from weft._comm.transport.tls import Certificates, Tls, TlsClient
from weft.errors import DistNetworkError

SERVICE = Service("test", "1")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return made_by(trustme.CA(), tmp_path_factory.mktemp("certificates"))


def made_by(authority, folder):
    """Files of a certificate that an authority has signed."""
    certificate = authority.issue_cert("worker")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "worker.pem"))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    return Certificates(*(str(folder / f"{name}.pem") for name in ("worker", "worker", "authority")))


@pytest.fixture
def ends(certificates):
    """Both ends of a connection whose handshake is complete."""
    near, far = (Tls(certificates.context(server=server), server=server) for server in (False, True))
    to_far = near.do_handshake(b"")
    while not (near.ready and far.ready):
        to_near = far.do_handshake(to_far)
        to_far = near.do_handshake(to_near)
    return near, far


def test_what_is_sealed_can_be_opened_whole_and_in_pieces(ends):
    near, far = ends
    sent = bytes(range(256)) * 1000
    sealed = near.seal(sent) + near.seal(b"") + near.seal(b"end")
    assert sent[:100] not in sealed
    opened = [far.open(sealed[at : at + 1000]) for at in range(0, len(sealed), 1000)]
    assert b"".join(opened) == sent + b"end"
    assert near.open(far.seal(b"answer"), 3) + near.open(b"") == b"answer"


def test_what_was_changed_or_comes_twice_is_refused(ends):
    near, far = ends
    sealed = near.seal(b"once")
    assert far.open(sealed) == b"once"
    with pytest.raises(DistNetworkError, match=r"^TLS fails: .*BAD_RECORD_MAC"):
        far.open(sealed)
    assert isinstance(far.seal(b"to nobody"), bytes)  # reading has told of it


@pytest.fixture
def door(certificates):
    """The address of an acceptor that wants TLS, and its guests."""
    guests = SimpleQueue()
    listener = sockets.listen("127.0.0.1", 0)
    context = certificates.context(server=True)
    acceptor = Acceptor([listener], SERVICE, b"key", guests.put, context=context, seconds=0.5)
    yield listener.getsockname(), guests
    acceptor.close()


def test_the_key_is_proved_inside_of_tls_which_goes_on(certificates, door):
    address, guests = door
    with socket.create_connection(address) as sock:
        secure = TlsClient(sock, certificates.context(server=False), Deadline(60))
        authenticate(secure, b"key", SERVICE, Deadline(60), "me")
        guest = guests.get(timeout=60)
        with guest.sock:
            assert guest.identity == "me"
            guest.sock.sendall(guest.tls.seal(b"hello"))
            assert secure.recv(2) + secure.recv(10) == b"hello"
            secure.sendall(b"back")
            guest.sock.setblocking(True)
            assert guest.tls.open(guest.sock.recv(1024)) == b"back"


def test_peers_without_tls_or_of_another_authority_are_sent_away(certificates, door, tmp_path, caplog):
    address, _ = door
    with socket.create_connection(address, timeout=60) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while plain.recv(1024):  # the alert
            pass
    stranger = made_by(trustme.CA(), tmp_path)._replace(authority=certificates.authority)
    with socket.create_connection(address) as sock, pytest.raises(DistNetworkError, match="TLS fails: "):
        authenticate(TlsClient(sock, stranger.context(server=False), Deadline(60)), b"key", SERVICE, Deadline(60))
    assert "was sent away: TLS fails: HTTP_REQUEST; all workers need certificates of one authority" in caplog.text


def test_a_handshake_ends_at_its_deadline_however_slowly_the_other_side_speaks(certificates, door):
    address, _ = door
    hello = Tls(certificates.context(server=False), server=False).do_handshake(b"")
    over = threading.Event()

    def drip(sock):
        for byte in hello:
            sock.sendall(bytes([byte]))
            if over.wait(0.05):
                return

    with socket.create_connection(address, timeout=60) as sock, ThreadPoolExecutor(1) as threads:
        dripping = threads.submit(drip, sock)
        assert sock.recv(1) == b""
        assert not dripping.done()
        over.set()


def test_a_server_that_says_nothing_is_waited_for_until_the_deadline(certificates):
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.create_connection(mute.getsockname()) as sock:
        context = certificates.context(server=False)
        with pytest.raises(TimeoutError):
            TlsClient(sock, context, Deadline(0.1))
