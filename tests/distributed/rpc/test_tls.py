"""Calls over TLS, and those who are kept out."""

from __future__ import annotations

import json
import socket
import ssl
import sys
from contextlib import contextmanager

import pytest
import trustme

from tests.distributed.processes import ended, start
from tests.distributed.rpc import job, secured
from tests.distributed.rpc.malformed import connected, drained
from weft._comm.deadline import Deadline
from weft._comm.transport import wire
from weft._comm.transport.tls import Certificates
from weft.distributed import rpc
from weft.distributed.rpc._listener import ConnectOptions, connect
from weft.errors import DistNetworkError


def certified(folder):
    """A folder with an authority, and a certificate of it."""
    folder.mkdir()
    authority = trustme.CA()
    made = authority.issue_cert("worker")
    made.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    made.private_key_pem.write_to_path(str(folder / "key.pem"))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    return Certificates(*(str(folder / f"{name}.pem") for name in ("certificate", "key", "authority")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def ours(folder):
    return certified(folder / "ours")


@pytest.fixture(scope="module")
def others(folder):
    return certified(folder / "others")


def launched(program, folder, tmp_path):
    command = [sys.executable, "-m", "tests.distributed.rpc.secured", program]
    return [start([*command, str(rank), "2", f"file://{tmp_path}/store", str(folder)]) for rank in range(2)]


@pytest.fixture(scope="module")
def workers(folder, ours, tmp_path_factory):
    yield from job.shared("tests.distributed.rpc.secured", 2, tmp_path_factory, str(folder / "ours"))


@pytest.mark.slow
@job.each(*secured.case)
def test_calls(case, workers):
    workers.run(case)


@pytest.mark.soak
def test_a_worker_without_certificates_is_not_reached(ours, folder, tmp_path):
    for code, output, errors in ended(launched("mixed", folder / "ours", tmp_path)):
        assert (code, output, errors) == (0, f"{job.PASSED}\n", "")


class Visited:
    """A worker to be visited, that calls another one in between."""

    def __init__(self, folder, tmp_path):
        self.processes = launched("visited", folder, tmp_path)
        self.endpoint = json.loads(self.processes[0].stdout.readline())

    def is_well(self):
        process = self.processes[0]
        process.stdin.write("call\n")
        process.stdin.flush()
        return process.stdout.readline() == "well\n"

    def refused(self, certificates):
        """Why a worker with such certificates cannot reach it."""
        with pytest.raises(DistNetworkError) as caught:
            connect(self.endpoint, ConnectOptions(unix=False, certificates=certificates), "99 stranger", Deadline(60))
        return str(caught.value)


@pytest.fixture(scope="module")
def visited(folder, ours, tmp_path_factory):
    made = Visited(folder / "ours", tmp_path_factory.mktemp("visited"))
    yield made
    for code, output, errors in ended(made.processes):
        assert (code, output) == (0, f"{job.PASSED}\n"), errors
        assert all(" was sent away: " in line for line in errors.splitlines())


@contextmanager
def called(endpoint, certificates):
    options = ConnectOptions(unix=False, certificates=certificates)
    connection = connect(endpoint, options, "99 stranger", Deadline(60))
    with connection.sock as sock:
        sock.settimeout(60)
        yield sock, connection.tls


@pytest.mark.slow
def test_who_has_no_certificate_is_refused(visited, ours, others, monkeypatch):
    assert visited.refused(others) == (
        "TLS fails: CERTIFICATE_VERIFY_FAILED; all workers need certificates of one authority"
    )
    theirs = Certificates(others.certificate, others.private_key, ours.authority)
    assert visited.refused(theirs) == (
        "TLS fails: TLSV1_ALERT_UNKNOWN_CA; all workers need certificates of one authority"
    )
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.load_verify_locations(ours.authority)
    monkeypatch.setattr(Certificates, "context", lambda self, server: bare)
    assert visited.refused(ours) == (
        "TLS fails: TLSV13_ALERT_CERTIFICATE_REQUIRED; all workers need certificates of one authority"
    )
    monkeypatch.undo()
    assert visited.refused(None).startswith("it has TLS certificates and this worker has none")
    sock = connected(visited.endpoint, socket.AF_INET)
    sock.sendall(wire.frame(bytes(64)))  # a greeting, if there were no TLS
    drained(sock)
    assert visited.is_well()


@pytest.mark.slow
def test_who_has_a_certificate_needs_the_key_too(visited, ours, monkeypatch):
    monkeypatch.setenv("WEFT_JOB_KEY", "the key of another job")
    assert "has another job key; give all processes of a job the same WEFT_JOB_KEY" in visited.refused(ours)
    assert visited.is_well()


@pytest.mark.slow
def test_forged_records_end_their_connection_only(visited, ours):
    for forged in (lambda seal: seal[:-1] + bytes([seal[-1] ^ 1]), lambda seal: b"\x17\x03\x03\x00\x20" + bytes(32)):
        with called(visited.endpoint, ours) as (sock, tls):
            sock.sendall(forged(tls.seal(bytes(20))))
            while sock.recv(1 << 16):
                pass
    assert visited.is_well()


def test_files_that_cannot_be_used(ours, others, tmp_path):
    junk, empty = tmp_path / "junk.pem", tmp_path / "empty.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\nno\n")
    empty.touch()
    unusable = r"^TLS: .* cannot be used: .*; they must be in PEM, the key unencrypted and the certificate's$"
    for position in range(3):
        for file, text in (
            (tmp_path / "none", r"^TLS: '.*none' cannot be read: No such file or directory; give files of a cert"),
            (tmp_path, "cannot be read: Is a directory"),
            (junk, unusable),
            (empty, unusable),
        ):
            files = [*ours[:position], str(file), *ours[position + 1 :]]
            with pytest.raises(ValueError, match=text):
                Certificates(*files).context(server=True)
    with pytest.raises(ValueError, match=unusable):
        Certificates(ours.certificate, others.private_key, ours.authority).context(server=False)


def test_a_key_with_a_password_is_refused_and_not_asked_for(ours, tmp_path):
    from cryptography.hazmat.primitives import serialization as coding

    with open(ours.private_key, "rb") as file:
        key = coding.load_pem_private_key(file.read(), None)
    kind, how = coding.PrivateFormat.PKCS8, coding.BestAvailableEncryption(b"secret")
    (tmp_path / "key.pem").write_bytes(key.private_bytes(coding.Encoding.PEM, kind, how))
    with pytest.raises(ValueError, match="the key unencrypted"):
        Certificates(ours.certificate, str(tmp_path / "key.pem"), ours.authority).context(server=True)


@pytest.mark.parametrize("given", ["a file", ("certificate", "key"), ()])
def test_certificates_are_three_files(given):
    with pytest.raises(
        ValueError, match=r"^certificates must be three files, a certificate, its private key and the auth"
    ):
        rpc.TensorPipeRpcBackendOptions(certificates=given)


def test_joining_with_a_file_that_is_not_there(ours, tmp_path):
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"file://{tmp_path}/store", certificates=(ours.certificate, "/no/such/key", ours.authority)
    )
    for _ in range(2):  # nothing is left of the first one
        with pytest.raises(ValueError, match=r"^TLS: '/no/such/key' cannot be read"):
            rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=options)
