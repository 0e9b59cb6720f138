"""The launcher starts fast, since nothing that it needs loads arrays."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"jax", "numpy", "http.server", "asyncio", "tensorboard"}


@pytest.mark.parametrize(
    "part",
    [
        "multiprocessing",
        "multiprocessing.api",
        "timer",
        "events",
        "metrics",
        "agent.server.health_check_server",
        "utils.store",
        "control_plane",
    ],
)
def test_a_part_loads_nothing_heavy(part):
    script = f"import sys, weft.distributed.elastic.{part}; print(sorted({HEAVY!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
