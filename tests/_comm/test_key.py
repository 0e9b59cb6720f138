"""The job's key: where it comes from, and its proof over a connection."""

from __future__ import annotations

import os
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from weft._comm.deadline import Deadline
from weft._comm.key import ServerProof, job_key, prove
from weft._comm.wire import Frames, receive, send
from weft.errors import DistNetworkError, JobKeyError


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("WEFT_JOB_KEY", "WEFT_JOB_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_the_key_of_the_environment_comes_first(home, monkeypatch):
    file = home / "key"
    file.write_text("a key from the file\n")
    file.chmod(0o600)
    monkeypatch.setenv("WEFT_JOB_KEY_FILE", str(file))
    assert job_key() == b"a key from the file"
    monkeypatch.setenv("WEFT_JOB_KEY", "a key from the environment")
    assert job_key() == b"a key from the environment"


def test_the_users_own_key_is_made_once(home):
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: job_key(), range(8)))
    assert len(keys) == 1
    assert len(keys.pop()) == 64
    (file,) = (home / "weft").iterdir()
    assert file.name == "job.key"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_key_file_that_cannot_be_used(home, monkeypatch):
    monkeypatch.setenv("WEFT_JOB_KEY_FILE", str(home / "none"))
    with pytest.raises(DistNetworkError, match=r"^the job's key cannot be read: .*none'; set WEFT_JOB_KEY, or mend"):
        job_key()


def test_a_key_that_could_be_guessed_is_refused(home, monkeypatch):
    file = home / "key"
    file.write_text("fifteen bytes !\n")
    file.chmod(0o600)
    monkeypatch.setenv("WEFT_JOB_KEY_FILE", str(file))
    refused = r"has 15 bytes, and needs at least 16; make one with `openssl rand -hex 32`$"
    with pytest.raises(DistNetworkError, match=rf"^the job's key in '.*/key' {refused}"):
        job_key()
    monkeypatch.setenv("WEFT_JOB_KEY", "fifteen bytes !")
    with pytest.raises(DistNetworkError, match=rf"^the job's key in WEFT_JOB_KEY {refused}"):
        job_key()


@pytest.mark.parametrize("mode", [0o620, 0o640, 0o604, 0o602, 0o666])
@pytest.mark.parametrize("own", [False, True])
def test_a_key_file_that_is_open_to_others_is_refused(mode, own, home, monkeypatch):
    file = home / "weft" / "job.key"
    file.parent.mkdir()
    file.write_text("the key of somebody else\n")
    file.chmod(mode)
    if not own:
        monkeypatch.setenv("WEFT_JOB_KEY_FILE", str(file))
    with pytest.raises(DistNetworkError, match=rf"^the job's key in '.*key' is open to others \(mode {mode:04o}\); "):
        job_key()
    file.chmod(0o400)
    assert job_key() == b"the key of somebody else"


def both(pair, server_key, client_key):
    near, far = pair
    with ThreadPoolExecutor(1) as threads:
        server = threads.submit(prove, far, server_key, Deadline(10), server=True)
        try:
            prove(near, client_key, Deadline(10), server=False)
            client = None
        except DistNetworkError as error:
            client = error
        return server.exception(timeout=10), client


def test_peers_with_the_same_key(pair):
    assert both(pair, b"key", b"key") == (None, None)


def test_peers_with_different_keys(pair):
    for error in both(pair, b"key", b"another"):
        assert isinstance(error, JobKeyError)
        assert "has another job key; give all processes of a job the same WEFT_JOB_KEY" in str(error)


def test_a_server_that_does_not_know_the_key_is_refused(pair):
    near, far = pair
    with ThreadPoolExecutor(1) as threads:
        client = threads.submit(prove, near, b"key", Deadline(10), server=False)
        send(far, ServerProof(b"guess").greeting, Deadline(10))
        theirs = receive(far, Frames(256), Deadline(10))
        send(far, theirs[32:], Deadline(10))  # the client's own proof, sent back
        assert isinstance(client.exception(timeout=10), JobKeyError)


def test_an_old_proof_does_not_serve_again():
    first, second = ServerProof(b"key"), ServerProof(b"key")
    near, far = socket.socketpair()
    with near, far, ThreadPoolExecutor(1) as threads:
        client = threads.submit(prove, near, b"key", Deadline(10), server=False)
        send(far, first.greeting, Deadline(10))
        proof = receive(far, Frames(256), Deadline(10))
        answer, proved = first.answer(proof)
        send(far, answer, Deadline(10))
        assert client.exception(timeout=10) is None
    assert proved
    assert second.answer(proof) == (b"refused", False)
    for length in (0, 1, 31, 32, 64, 255):
        assert second.answer(secrets.token_bytes(length)) == (b"refused", False)


def test_a_peer_that_is_no_peer(pair):
    near, far = pair
    send(far, b"SSH-2.0", Deadline(10))
    with pytest.raises(JobKeyError, match=r"does not speak Weft's protocol; is another program at this port\?$"):
        prove(near, b"key", Deadline(10), server=False)


def test_a_silent_peer_and_one_that_goes(pair):
    near, far = pair
    with pytest.raises(TimeoutError):
        prove(near, b"key", Deadline(0.02), server=False)
    far.close()
    with pytest.raises(DistNetworkError, match=r"^the connection was closed by the other side$"):
        prove(near, b"key", Deadline(10), server=False)


def test_no_key_is_in_the_greeting():
    assert os.environ.get("WEFT_JOB_KEY", "secret").encode() not in ServerProof(b"secret").greeting
