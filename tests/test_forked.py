"""What tests fork is like what they start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.forked import Forked, ran, started

PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
TELL = "import os, sys; print(__name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get('OWN')); sys.exit(3)"


def test_a_program_is_told_the_same(tmp_path):
    environment = {**os.environ, "OWN": "x"}
    command = [sys.executable, "-c", TELL, "a", "-b"]
    with started(command, env=environment, cwd=tmp_path, text=True, **PIPES) as forked:
        assert isinstance(forked, Forked)
        output = forked.communicate(timeout=60)
    plain = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (forked.returncode, *output) == (plain.returncode, plain.stdout, plain.stderr)


def test_an_exception_is_printed_without_what_led_to_the_program():
    done = ran([sys.executable, "-c", "1 / 0"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[1:] == [
        '  File "<string>", line 1, in <module>',
        "ZeroDivisionError: division by zero",
    ]


def test_it_takes_signals_and_waits():
    with started([sys.executable, "-c", "input(); input()"], text=True, **PIPES) as forked:
        assert forked.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            forked.wait(0.01)
        forked.kill()
        assert forked.wait(60) == forked.poll() == -signal.SIGKILL


def test_other_settings_and_other_commands_are_not_forked():
    for command, variables in (
        (["true"], {}),
        ([sys.executable, "-c", ""], {"WEFT_OWN": "x"}),
        ([sys.executable, "--version"], {}),
    ):
        with started(command, env={**os.environ, **variables}, **PIPES) as process:
            assert not isinstance(process, Forked)
            process.communicate(timeout=60)
