"""The proof of the job's key, between two ends of a connection and with somebody between them."""

from __future__ import annotations

import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest

from weft._comm.deadline import Deadline
from weft._comm.transport.authentication import ServerHandshake, Service, authenticate
from weft._comm.transport.wire import Frames, pack, receive, send
from weft.errors import DistNetworkError, JobKeyError, PeerGoneError

HERE = Service("store", "29500")
SERVICES = [HERE, Service("store", "29501"), Service("links", "a"), Service("gate", "a"), Service("rpc", "a")]


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def serve(sock, proof):
    """The server's side of one proof; its answer."""
    send(sock, proof.greeting, Deadline(10))
    answer = proof.answer(receive(sock, Frames(1024), Deadline(10)))
    send(sock, answer.payload, Deadline(10))
    return answer


def both(pair, server, client, words=""):
    """What server and client, each a key and a service, come to: an answer, and a session or an error."""
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(serve, pair[1], ServerHandshake(*server))
        try:
            reached = authenticate(pair[0], *client, Deadline(10), words)
        except DistNetworkError as error:
            reached = error
        return answer.result(timeout=10), reached


def test_peers_with_the_same_key_tag_what_they_say(pair):
    answer, session = both(pair, (b"key", HERE), (b"key", HERE), "who I am")
    assert (answer.identity, answer.refusal) == ("who I am", "")
    frames = [b"one", b"two", b"two", b"long" * 5000]
    to, back = ([tags.next((frame,)) for frame in frames] for tags in session)
    assert [answer.session.incoming.next((frame,)) for frame in frames] == to
    assert [answer.session.outgoing.next((frame,)) for frame in frames] == back
    assert len({*to, *back}) == 8


def test_peers_with_different_keys(pair):
    answer, error = both(pair, (b"key", HERE), (b"another", HERE))
    assert (answer.session, answer.identity, answer.refusal) == (None, "", "it has another job key")
    assert isinstance(error, JobKeyError)
    assert "has another job key; give all processes of a job the same WEFT_JOB_KEY" in str(error)


@pytest.mark.parametrize(("listening", "called"), list(permutations(SERVICES, 2)))
def test_a_proof_that_is_handed_on_to_another_service_opens_nothing(pair, listening, called):
    """Somebody listens where the victim calls, and hands on what it says to another service of the victim."""
    victim, squatter = pair
    proof = ServerHandshake(b"key", listening)
    with ThreadPoolExecutor(1) as threads:
        client = threads.submit(authenticate, victim, b"key", called, Deadline(10))
        answer = serve(squatter, proof)
        assert answer.session is None
        assert answer.refusal == f"it called '{called}', and this is '{listening}'"
        with pytest.raises(PeerGoneError, match=r"is another listener: it called "):
            client.result(timeout=10)


def test_who_hands_on_words_cannot_change_them(pair):
    proof = ServerHandshake(b"key", HERE)
    with ThreadPoolExecutor(1) as threads:
        client = threads.submit(authenticate, pair[0], b"key", HERE, Deadline(10), "1")
        send(pair[1], proof.greeting, Deadline(10))
        said = receive(pair[1], Frames(1024), Deadline(10))
        assert proof.answer(said.replace(pack(b"1"), pack(b"2"))).refusal == "it has another job key"
        send(pair[1], proof.answer(said).payload, Deadline(10))
        assert client.exception(timeout=10) is None


def test_a_server_that_does_not_know_the_key_is_refused(pair):
    with ThreadPoolExecutor(1) as threads:
        client = threads.submit(authenticate, pair[0], b"key", HERE, Deadline(10))
        send(pair[1], ServerHandshake(b"guess", HERE).greeting, Deadline(10))
        said = receive(pair[1], Frames(1024), Deadline(10))
        send(pair[1], pack(b"welcome", said[-32:]), Deadline(10))  # the client's own proof, sent back
        assert isinstance(client.exception(timeout=10), JobKeyError)


def test_an_old_proof_does_not_serve_again(pair):
    first, second = ServerHandshake(b"key", HERE), ServerHandshake(b"key", HERE)
    with ThreadPoolExecutor(1) as threads:
        client = threads.submit(authenticate, pair[0], b"key", HERE, Deadline(10))
        send(pair[1], first.greeting, Deadline(10))
        said = receive(pair[1], Frames(1024), Deadline(10))
        send(pair[1], first.answer(said).payload, Deadline(10))
        assert client.exception(timeout=10) is None
    assert second.answer(said).refusal == "it has another job key"


@pytest.mark.parametrize("payload", [b"", b"x", pack(b"1", b"2"), secrets.token_bytes(255), pack(*4 * [b""])])
def test_what_is_no_proof_lets_nobody_in(payload):
    try:
        answer = ServerHandshake(b"key", HERE).answer(payload)
    except DistNetworkError:
        return
    assert (answer.session, answer.refusal) == (None, "it has another job key")


@pytest.mark.parametrize(
    ("greeting", "message"),
    [
        (b"SSH-2.0", r"does not speak Weft's protocol; is another program at this port\?$"),
        (b"weft-job-key-1\n" + bytes(32), r"speaks an older protocol of Weft's; install one version on all hosts$"),
    ],
)
def test_a_peer_that_is_no_peer(pair, greeting, message):
    send(pair[1], greeting, Deadline(10))
    with pytest.raises(JobKeyError, match=message):
        authenticate(pair[0], b"key", HERE, Deadline(10))


def test_a_peer_of_an_older_protocol_is_told():
    with pytest.raises(DistNetworkError, match=r"^it sent no proof; all hosts need one version of Weft$"):
        ServerHandshake(b"key", HERE).answer(bytes(64))


def test_a_silent_peer_and_one_that_goes(pair):
    near, far = pair
    with pytest.raises(TimeoutError):
        authenticate(near, b"key", HERE, Deadline(0.02))
    far.close()
    with pytest.raises(DistNetworkError, match=r"^the connection was closed by the other side$"):
        authenticate(near, b"key", HERE, Deadline(10))


def test_no_key_is_in_the_greeting():
    assert b"secret" not in ServerHandshake(b"secret", HERE).greeting
