"""Temporary folders, and what is left of processes that were killed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft._base.temporary import remove_folder, remove_stale, temporary_folder, user_folder

HOLDS = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from weft._base.temporary import temporary_folder
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


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system's temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_folders_of_killed_processes_go_with_the_next_one(system, process):
    killed, left = process(HOLDS, system)
    Path(left, "deep").mkdir()
    Path(left, "deep", "file").touch()
    _, held = process(HOLDS, system)
    killed.kill()
    killed.wait()
    Path(user_folder(), "agent_of_somebody_else").mkdir()
    assert os.path.exists(left)
    own = temporary_folder("agent_")
    assert not os.path.exists(left)
    assert os.path.isdir(held)
    assert os.path.isdir(own)
    remove_folder(own)
    remove_folder(own)
    assert sorted(os.listdir(user_folder())) == sorted(["agent_of_somebody_else", os.path.basename(held)])


def test_folders_are_where_only_this_user_can_enter(system):
    folder = temporary_folder("agent_")
    assert Path(folder).parent == Path(user_folder()) == system / f"weft-{os.geteuid()}"
    assert os.stat(user_folder()).st_mode & 0o777 == 0o700
    remove_folder(folder)
    assert os.listdir(system) == []


@pytest.mark.parametrize("planted", ["open to others", "link", "file"])
def test_a_name_that_is_taken_is_not_used(system, planted, caplog):
    taken = system / f"weft-{os.geteuid()}"
    match planted:
        case "open to others":
            taken.mkdir()
            taken.chmod(0o777)
        case "link":
            (system / "elsewhere").mkdir(0o700)
            taken.symlink_to("elsewhere")
        case "file":
            taken.touch()
    folder = Path(temporary_folder("agent_"))
    assert folder.parent.parent == system
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert not folder.is_relative_to(taken.resolve())
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{taken} is not a folder that only user {os.geteuid()} can enter, so ")
    remove_folder(str(folder))


def test_what_cannot_be_removed_is_a_line_in_the_log(tmp_path, caplog):
    """Some thousand nested folders are a RecursionError, or use up the file descriptors."""
    here = os.getcwd()
    deep = "agent_aaaaaaaa"
    try:
        os.chdir(tmp_path)
        for _ in range(3000):
            os.mkdir(deep)
            os.chdir(deep)
            deep = "d"
    finally:
        os.chdir(here)
    (tmp_path / "agent_bbbbbbbb").mkdir()
    with caplog.at_level(logging.INFO, logger="weft"):
        remove_stale(tmp_path, "agent_.{8}")
    assert not (tmp_path / "agent_bbbbbbbb").exists()
    if (tmp_path / "agent_aaaaaaaa").exists():
        assert "agent_aaaaaaaa, left by a killed process, stays: " in caplog.text
        subprocess.run(["rm", "-r", tmp_path / "agent_aaaaaaaa"], check=True)
