"""The job's key: where it comes from."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from weft._base.config import user_cache
from weft._comm.transport.key import job_key
from weft.errors import DistNetworkError


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("WEFT_JOB_KEY", "WEFT_JOB_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


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


@pytest.mark.parametrize("text", ["a key from the environment\n", "\udcff\udcfe of no encoding at all"])
def test_the_environments_key_is_read_as_a_file_would_be(text, home, monkeypatch):
    """A secret that is put into a variable often ends in a line break."""
    monkeypatch.setenv("WEFT_JOB_KEY", text)
    given = job_key()
    file = home / "key"
    file.write_bytes(os.fsencode(text))
    file.chmod(0o600)
    monkeypatch.delenv("WEFT_JOB_KEY")
    monkeypatch.setenv("WEFT_JOB_KEY_FILE", str(file))
    assert given == job_key() == os.fsencode(text).strip()


def test_blanks_are_no_key(home, monkeypatch):
    monkeypatch.setenv("WEFT_JOB_KEY", " " * 20)
    with pytest.raises(DistNetworkError, match="WEFT_JOB_KEY has 0 bytes"):
        job_key()


def test_a_pipe_in_place_of_a_key_file_holds_nobody_up(home, monkeypatch):
    os.mkfifo(home / "key", 0o600)
    monkeypatch.setenv("WEFT_JOB_KEY_FILE", str(home / "key"))
    with pytest.raises(DistNetworkError, match="is no regular file"):
        job_key()


def test_a_user_without_a_home_is_told(home, monkeypatch):
    def unknown(user):
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(DistNetworkError, match="no home folder to keep one in: set WEFT_JOB_KEY"):
        job_key()
    assert user_cache() is None
