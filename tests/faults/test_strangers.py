"""What another user of the host has put where a job looks. It takes root to be two users."""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from weft._comm.stores.file_store import FileStore
from weft._comm.transport.key import job_key
from weft.errors import DistNetworkError, DistStoreError

STRANGER = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users; to run these tests: sudo")


@pytest.fixture
def common():
    """A folder that all users may write."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def strangers_do(script, folder):
    subprocess.run(["/bin/sh", "-c", script], cwd=folder, user=STRANGER, group=STRANGER, extra_groups=[], check=True)


def test_a_key_that_a_stranger_has_laid_there_is_refused(common, monkeypatch):
    monkeypatch.delenv("WEFT_JOB_KEY", raising=False)
    monkeypatch.delenv("WEFT_JOB_KEY_FILE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(common))
    strangers_do("umask 077; mkdir weft; echo a key that the stranger knows > weft/job.key", common)
    refused = r"^the job's key in '.*/weft/job.key' belongs to user 65534, and this process is user 0's; make a file"
    with pytest.raises(DistNetworkError, match=refused):
        job_key()


@pytest.mark.parametrize("script", ["umask 077; : > store", "umask 077; printf 'weft-file-store-2\\n' > store"])
def test_a_store_that_a_stranger_has_laid_there_is_refused(common, script):
    strangers_do(script, common)
    content = (common / "store").read_bytes()
    with pytest.raises(DistStoreError, match=r"^FileStore: '.*/store' belongs to user 65534, who could change what "):
        FileStore(str(common / "store"), 1)
    assert (common / "store").read_bytes() == content


def test_a_store_that_a_stranger_puts_in_the_place_of_ours_is_refused(common):
    store = FileStore(str(common / "store"), 1)
    store.set("k", "v")
    strangers_do("mv store old; umask 077; cat > new < /dev/null; mv new store; rm old", common)
    with pytest.raises(DistStoreError, match=r"^FileStore: '.*/store' belongs to user 65534, who could change what "):
        store.get("k")
    store.close()
