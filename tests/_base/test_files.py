"""Files that are written whole, folders of processes, and what is left of those that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft._base.files import atomic_write, remove_folder, temporary_folder

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
HOLDS = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from weft._base.files import temporary_folder
print(temporary_folder("agent_"), flush=True)
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


def test_folders_of_killed_processes_go_with_the_next_one(tmp_path, process, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, left = process(HOLDS, tmp_path)
    Path(left, "deep").mkdir()
    Path(left, "deep", "file").touch()
    _, held = process(HOLDS, tmp_path)
    killed.kill()
    killed.wait()
    (tmp_path / "agent_of_somebody_else").mkdir()
    assert os.path.exists(left)
    own = temporary_folder("agent_")
    assert not os.path.exists(left)
    assert os.path.isdir(held)
    assert os.path.isdir(own)
    remove_folder(own)
    remove_folder(own)
    assert sorted(os.listdir(tmp_path)) == sorted(["agent_of_somebody_else", os.path.basename(held)])
