"""Stores in a file: several processes, killed ones, and what is left."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from datetime import timedelta
from pathlib import Path

import pytest

from weft._comm.stores.file_store import FileStore
from weft._comm.stores.observer import observed
from weft.errors import DistStoreError

_ADD = "import sys; from weft._comm.stores.file_store import FileStore; s = FileStore(sys.argv[1], int(sys.argv[2]))\n"


def spawn(path, world_size, script):
    return subprocess.Popen(
        [sys.executable, "-c", _ADD + script, str(path), str(world_size)], stdout=subprocess.PIPE, text=True
    )


def test_processes_share_a_file_and_the_last_removes_it(tmp_path):
    path = tmp_path / "store"
    peers = [spawn(path, 4, "for _ in range(200): s.add('n', 1)\ns.add('done', 1)") for _ in range(3)]
    store = FileStore(str(path), 4)
    assert store.path == str(path)
    assert [peer.communicate()[0] for peer in peers] == [""] * 3
    assert store.get("n") == b"600"
    assert path.exists()
    store.close()
    assert not path.exists()


def test_the_file_stays_while_the_number_of_users_is_unknown(tmp_path):
    path = tmp_path / "store"
    store = FileStore(str(path))
    store.set("k", "v")
    store.close()
    again = FileStore(str(path))
    assert again.get("k") == b"v"
    again.close()


def test_a_closed_store(tmp_path):
    store = FileStore(str(tmp_path / "store"), 1)
    store.close()
    store.close()
    for call in (lambda: store.set("k", "v"), lambda: store.check(["k"])):
        with pytest.raises(
            DistStoreError, match=r"^FileStore: the store on '.*store' has been closed in this process$"
        ):
            call()


@pytest.mark.parametrize("lost", [1, 5, 12])
def test_a_torn_record_is_cut_off(tmp_path, lost):
    path = tmp_path / "store"
    store = FileStore(str(path), 1)
    store.set("before", "1")
    store.set("torn", "never seen")
    os.truncate(path, path.stat().st_size - lost)
    other = FileStore(str(path), 1)  # counts itself in, where the torn record was
    assert other.list_keys() == ["before"]
    other.set("after", "2")
    third = FileStore(str(path), 1)
    assert sorted(third.list_keys()) == ["after", "before"]
    for each in (other, third, store):
        each.close()


def test_a_killed_writer_harms_nobody(tmp_path):
    path = tmp_path / "store"
    peer = spawn(path, 2, "s.set('up', '1')\nwhile True: s.append('long', 'x' * 1000); s.delete_key('long')")
    store = FileStore(str(path), 2)
    store.wait(["up"])
    peer.kill()
    peer.communicate()
    store.set("k", "v")
    assert store.get("k") == b"v"
    assert set(store.list_keys()) <= {"k", "up", "long"}
    store.close()


def test_files_that_are_no_stores(tmp_path):
    with pytest.raises(DistStoreError, match=r"^FileStore: '.*/no/store' cannot be opened: No such file or directory$"):
        FileStore(str(tmp_path / "no" / "store"))
    text = tmp_path / "notes.txt"
    text.write_text("something that somebody needs")
    with pytest.raises(
        DistStoreError, match=r"^FileStore: '.*notes\.txt' is there and no store; choose a path that is"
    ):
        FileStore(str(text), 1)
    assert text.read_text() == "something that somebody needs"


def test_a_full_disk_is_an_error_and_changes_nothing(tmp_path):
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "s.set('k', 'small'); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: s.set('k', 'x' * 9000)\nexcept Exception as error: print(type(error).__name__, error)\n"
        "print(s.get('k')); s.set('k', 'again'); print(s.get('k'))"
    )
    peer = spawn(tmp_path / "store", 1, code)
    first, *rest = peer.communicate()[0].splitlines()
    assert first.startswith("DistStoreError FileStore: ")
    assert "cannot be written: " in first
    assert rest == ["b'small'", "b'again'"]
    assert not list(tmp_path.iterdir())


def test_the_log_stays_short_while_many_write(tmp_path):
    path = tmp_path / "store"
    peers = [spawn(path, 3, f"for n in range(1500): s.set('k{at}', 'x' * 3000); s.add('n', 1)") for at in range(2)]
    store = FileStore(str(path), 3)
    store.set("mine", "v")
    assert [peer.communicate()[0] for peer in peers] == [""] * 2
    assert store.multi_get(["n", "mine", "k0", "k1"]) == [b"3000", b"v", b"x" * 3000, b"x" * 3000]
    assert path.stat().st_size < 1.1 * (1 << 20)  # of nine million bytes that were written
    store.set("after", "w")
    again = FileStore(str(path), 3)
    assert again.multi_get(["after", "n"]) == [b"w", b"3000"]
    again.close()
    store.close()
    assert not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_replaced_grows_on(tmp_path):
    path = tmp_path / "store"
    (tmp_path / "store.new").mkdir()
    store = FileStore(str(path), 1)
    for number in range(600):
        store.set("k", str(number) * 2000)
    assert store.get("k") == b"599" * 2000
    assert path.stat().st_size > 3 << 20
    store.close()
    assert not path.exists()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path, mode):
    path = tmp_path / "store"
    store = FileStore(str(path), 1)
    path.chmod(mode)
    with pytest.raises(
        DistStoreError,
        match=rf"^FileStore: '.*store' may be written by others \(mode {mode:04o}\), who could change what this job's "
        r"processes tell each other; choose a path that is free, in a folder of your own$",
    ):
        FileStore(str(path), 1)
    store.close()


def test_records_are_read_with_the_jobs_key_only(tmp_path, monkeypatch):
    path = tmp_path / "store"
    monkeypatch.setenv("WEFT_JOB_KEY", "the key of this job")
    store = FileStore(str(path), 1)
    store.set("k", "v")
    monkeypatch.setenv("WEFT_JOB_KEY", "the key of another job")
    refused = r"^FileStore: a record in '.*store' was not written with this job's key; give all processes of a job the "
    with pytest.raises(DistStoreError, match=refused):
        FileStore(str(path), 1)
    assert store.get("k") == b"v"
    store.close()


def records(content):
    """Where each record of a file starts."""
    at = len(b"weft-file-store-2\n") + 16
    while at < len(content):
        yield at
        at += 8 + int.from_bytes(content[at : at + 4], "little")


def without_one(content):
    _, second, third, *_ = records(content)
    return content[:second] + content[third:]


def twice(content):
    *_, last = records(content)
    return content + content[last:]


def of_another_file(content):
    (start, *_) = records(content)
    return content[: start - 1] + bytes([content[start - 1] ^ 1]) + content[start:]


def changed(content):
    """The last value with a right checksum, and no right proof."""
    *_, last = records(content)
    record = content[last + 8 : -1] + b"w"
    return content[:last] + content[last : last + 4] + zlib.crc32(record).to_bytes(4, "little") + record


@pytest.mark.parametrize("change", [without_one, twice, of_another_file, changed])
def test_records_that_nobody_of_the_job_has_written_there_are_refused(tmp_path, change):
    path = tmp_path / "store"
    store = FileStore(str(path), 1)
    for value in ("1", "2", "3"):
        store.set("k", value)
    content = path.read_bytes()
    path.write_bytes(change(content))
    with pytest.raises(DistStoreError, match=r"^FileStore: a record in '.*store' was not written with this job's key"):
        FileStore(str(path), 1)
    path.write_bytes(content)
    assert store.get("k") == b"3"
    store.close()


def test_what_stands_where_a_shorter_log_goes_is_not_written_to(tmp_path):
    path, other = tmp_path / "store", tmp_path / "other"
    other.touch()
    os.link(other, tmp_path / "store.new")
    store = FileStore(str(path), 1)
    for number in range(400):
        store.set("k", str(number) * 2000)
    assert path.stat().st_size < 2 << 20
    assert other.read_bytes() == b""
    store.close()


def test_a_file_that_somebody_has_made_shorter(tmp_path):
    store = FileStore(f"{tmp_path}/store", 1)
    store.set("a", "b")
    os.truncate(store.path, os.path.getsize(store.path) - 5)
    for use in (lambda: store.get("a"), lambda: store.set("a", "c")):
        with pytest.raises(DistStoreError, match=r"store' has been made shorter by somebody else"):
            use()


def test_a_damaged_record_is_told_and_what_follows_it_is_not_cut_off(tmp_path):
    store = FileStore(f"{tmp_path}/store", 2)
    store.set("a", "b")
    with open(store.path, "r+b") as file:
        file.seek(40)  # in the first record
        byte = file.read(1)[0]
        file.seek(40)
        file.write(bytes([byte ^ 1]))
    content = Path(store.path).read_bytes()
    for use in (
        lambda: FileStore(store.path, 2),
        lambda: observed(f"file://{store.path}", timedelta(seconds=0.1)).get("a"),
    ):
        with pytest.raises(DistStoreError, match=r"a record in .*store' is damaged, so what follows it is lost"):
            use()
    assert Path(store.path).read_bytes() == content
