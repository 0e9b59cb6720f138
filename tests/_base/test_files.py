"""Files that are written whole, and links at their paths. What other users do is in tests/faults/test_strangers.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from weft._base.files import atomic_write, followed, open_own

WRITES = """
import sys
from pathlib import Path
from weft._base.files import atomic_write
with atomic_write(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def process():
    """Starts a script that has said a line, and waits on its input."""
    started = []

    def start(script, *args):
        one = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(one)
        return one, one.stdout.readline().strip()

    yield start
    for one in started:
        one.kill()
        one.communicate()


def write(path, content):
    with atomic_write(path) as file:
        file.write(content)


@pytest.mark.parametrize("name", ["x.weft", "[a].*+"])
def test_what_a_killed_process_has_left_goes_with_the_next_write(name, tmp_path, process):
    path = tmp_path / name
    killed, _ = process(WRITES, path)
    killed.kill()
    killed.wait()
    assert len(os.listdir(tmp_path)) == 1
    write(path, b"whole")
    assert os.listdir(tmp_path) == [name]
    assert path.read_bytes() == b"whole"


def test_what_a_living_process_writes_stays(tmp_path, process):
    path = tmp_path / "x"
    living, _ = process(WRITES, path)
    write(path, b"ours")
    assert len(os.listdir(tmp_path)) == 2
    living.communicate("")
    assert os.listdir(tmp_path) == ["x"]
    assert path.read_bytes() == b"half"


def test_other_files_stay(tmp_path):
    names = [".x.0123456.part", ".x.0123456g.part", "x.01234567.part", ".y.01234567.part", ".x.01234567.part.txt"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".x.01234567.part").symlink_to("elsewhere")
    write(tmp_path / "x", b"")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, ".x.01234567.part", "x"])


def test_permissions_of_an_existing_file_are_kept(tmp_path):
    path = tmp_path / "x"
    write(path, b"new")
    usual = path.stat().st_mode
    path.chmod(0o640)
    write(path, b"again")
    assert path.stat().st_mode & 0o777 == 0o640
    with atomic_write(path, private=True) as file:
        file.write(b"secret")
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.symlink_to("elsewhere")
    (tmp_path / "elsewhere").touch(0o700)
    write(path, b"a file, in the place of the link")
    assert path.stat().st_mode == usual
    assert (tmp_path / "elsewhere").read_bytes() == b""


def test_an_error_names_the_path_that_the_caller_knows(tmp_path):
    (tmp_path / "long").mkdir()
    path = tmp_path / "long" / ("x" * 250)  # too long with what a temporary name adds
    with pytest.raises(OSError, match=f"File name too long: '{path}'$"):
        write(path, b"")
    assert os.listdir(tmp_path / "long") == []


def test_links_of_this_user_are_followed(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to(tmp_path / "deep" / "c")
    assert followed(tmp_path / "a") == tmp_path / "deep" / "c"
    (tmp_path / "deep" / "c").symlink_to("../d")
    assert os.path.samefile(followed(tmp_path / "a").parent, tmp_path)
    (tmp_path / "d").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        followed(tmp_path / "a")


def test_a_file_of_ones_own_has_one_name_and_no_link(tmp_path):
    path = tmp_path / "x"
    os.close(open_own(path, os.O_RDWR))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    os.close(open_own(path, os.O_WRONLY))
    assert path.stat().st_mode & 0o777 == 0o600
    os.link(path, tmp_path / "second")
    (tmp_path / "link").symlink_to("x")
    os.mkfifo(tmp_path / "pipe")
    for name in ("x", "link", "pipe", "."):
        with pytest.raises(OSError, match=re.escape(f"'{tmp_path / name}'")):
            open_own(tmp_path / name, os.O_RDWR)
