"""Environment variables, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

EAGER = """
import jax, weft
from weft._base.state import ambient
x = weft.ones(2)
y = x[0] + 1
assert not y._value.is_pending and not ambient().pending
x.add_(1)
w = weft.ones(2, requires_grad=True)
((w * x) ** 2).sum().backward()
print(x.tolist(), w.grad.tolist(), repr(jax.config.jax_compilation_cache_dir))
"""

ALLOCATOR = """
import ctypes
calls = []
class Spy:
    def __init__(self, name): pass
    def mallopt(self, *args): calls.append(args)
ctypes.CDLL = Spy
import weft._lazy.runtime
print(len(calls))
"""

CACHE = """
import warnings
import jax, weft
warnings.filterwarnings("error", category=UserWarning, append=True)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
x = weft.tensor([[3.0, 1.0], [1.0, 2.0]])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a quick machine keeps the program, too
for _ in range(40):
    x = (x.sin() * 2 - x.exp().log1p()).softmax(0)
print(x.tolist(), len(hits))
"""


def run(script, **variables):
    """What a script prints under these environment variables."""
    found = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **variables}, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_eager_mode_computes_each_operator_at_once_and_the_cache_may_be_off():
    found = run(EAGER, WEFT_EAGER="1", WEFT_COMPILE_CACHE="", JAX_COMPILATION_CACHE_DIR="")
    assert found == "[2.0, 2.0] [8.0, 8.0] ''"


def test_the_allocator_is_tuned_unless_told_otherwise():
    tuned, left = (run(ALLOCATOR, WEFT_TUNE_ALLOCATOR=value) for value in ("1", "0"))
    assert (int(tuned) > 0) == sys.platform.startswith("linux")
    assert left == "0"


def test_a_flag_is_on_or_off():
    script = """
import weft
try:
    weft.zeros(1)
except weft.errors.SettingError as error:
    print(error)
"""
    assert run(script, WEFT_NATIVE="maybe") == "WEFT_NATIVE=maybe: expected one of 1, true, on, yes, 0, false, off, no"
    assert not run(script, WEFT_NATIVE="Off")


@pytest.mark.compiled
def test_a_second_process_takes_compiled_programs_from_the_cache(tmp_path):
    first, hits = run(CACHE, WEFT_COMPILE_CACHE=str(tmp_path)).rsplit(" ", 1)
    assert hits == "0"
    assert any(tmp_path.rglob("*"))
    second, hits = run(CACHE, WEFT_COMPILE_CACHE=str(tmp_path)).rsplit(" ", 1)
    assert int(hits) > 0
    assert second == first


@pytest.mark.compiled
@pytest.mark.parametrize("left", [10, *(pytest.param(left, marks=pytest.mark.soak) for left in (0, -1))])
def test_entries_of_the_cache_that_a_killed_process_left_are_quiet_and_go(left, tmp_path):
    first, _ = run(CACHE, WEFT_COMPILE_CACHE=str(tmp_path)).rsplit(" ", 1)
    entries = list(tmp_path.rglob("*-cache"))
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:left])
        os.utime(path, (time.time() + 3600, time.time() + 3600))
    assert run(CACHE, WEFT_COMPILE_CACHE=str(tmp_path)) == f"{first} 0"  # as young as this, they may be being written
    for path in entries:
        os.utime(path, (path.stat().st_atime, time.time() - 60))
    for path in tmp_path.rglob(".checked"):
        path.unlink()
    assert run(CACHE, WEFT_COMPILE_CACHE=str(tmp_path)) == f"{first} 0"
    assert run(CACHE, WEFT_COMPILE_CACHE=str(tmp_path)) == f"{first} {len(entries)}"
