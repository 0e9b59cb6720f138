"""The c10d backend: the state in a store, and stores that cannot be had."""

import socket

import pytest

from weft._comm.stores.file_store import FileStore
from weft._comm.stores.store import HashStore
from weft._comm.stores.tcp_store import TCPStore
from weft.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from weft.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend, create_backend
from weft.distributed.elastic.rendezvous.utils import free_port

FAILED = r"^The connection to the C10d store has failed\. See inner exception for details\. "


def created(endpoint, **options):
    return create_backend(RendezvousParameters("c10d", endpoint, "job", 1, 1, **options))


@pytest.fixture(params=["hash", "file", "tcp"])
def store(request, tmp_path):
    if request.param == "tcp":
        found = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    else:
        found = FileStore(str(tmp_path / "store")) if request.param == "file" else HashStore()
    yield found
    found.close()


def test_states_are_compared_and_set(store):
    backend = C10dRendezvousBackend(store, "job")
    assert backend.get_state() is None
    assert backend.set_state(b"zero", 7) is None
    state, token, was_set = backend.set_state(b"one")
    assert (state, was_set) == (b"one", True)
    assert backend.get_state() == (b"one", token)
    for wrong in (None, b"other", "of nowhere", 7):
        assert backend.set_state(b"two", wrong) == (b"one", token, False)
    assert backend.set_state(b"two", token)[::2] == (b"two", True)
    assert backend.set_state(b"three", token)[::2] == (b"two", False)


def nobody():
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("endpoint", "is_host", "cause"),
    [
        (nobody, False, "Connection refused"),
        (lambda: f"no.such.host.invalid:{free_port()}", None, "no.such.host.invalid"),
        (lambda: f"no.such.host.invalid:{free_port()}", True, "no.such.host.invalid"),
    ],
)
def test_a_store_that_cannot_be_reached_is_an_error_after_the_read_timeout(endpoint, is_host, cause):
    where, options = endpoint(), {} if is_host is None else {"is_host": is_host}
    with pytest.raises(RendezvousConnectionError, match=FAILED + "no rendezvous at " + where) as caught:
        created(where, read_timeout="0.1", **options)
    assert cause in str(caught.value.__cause__)
    if is_host:
        assert "this node serves it and cannot reach itself under that name" in str(caught.value)
        with socket.create_server(("", int(where.rpartition(":")[2]))):
            pass  # the port is free again


def test_a_port_that_another_program_has():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        where = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(
            RendezvousConnectionError, match=FAILED + "this node cannot serve the rendezvous at " + where
        ):
            created(where, is_host=True)
        with pytest.raises(RendezvousConnectionError, match=FAILED + "no rendezvous at .* said nothing for 1 s"):
            created(where, read_timeout=0.1)


def test_a_file_that_cannot_be_used(tmp_path, monkeypatch):
    with pytest.raises(
        RendezvousConnectionError, match=FAILED + "the file store '.*' of the rendezvous cannot be used"
    ):
        created(str(tmp_path / "no" / "file"), store_type="file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no"))
    with pytest.raises(RendezvousConnectionError, match=FAILED + "the file store '' of the rendezvous cannot be used"):
        created("", store_type="file")


@pytest.mark.parametrize("error", [RuntimeError, ValueError, OSError, TimeoutError])
def test_errors_of_a_store_are_errors_of_the_connection(error):
    class Broken(HashStore):
        def compare_set(self, key, expected_value, desired_value):
            raise error("it is broken")

    with pytest.raises(RendezvousConnectionError, match=FAILED + "it is broken") as caught:
        C10dRendezvousBackend(Broken(), "job")
    assert type(caught.value.__cause__) is error


def test_times():
    backend, store = created("localhost:0", read_timeout=2)
    assert (store.timeout.total_seconds(), backend._store.timeout.total_seconds()) == (2, 2)
    backend, store = created("localhost:0")
    assert (store.timeout.total_seconds(), backend._store.timeout.total_seconds()) == (60, 5)
