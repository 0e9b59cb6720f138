"""Command lines and configurations that PyTorch's tests of the launcher expect to be refused, and as what."""

from __future__ import annotations

import pytest

from tests.distributed.refusals import refuses, rows
from weft.distributed import run


def asked(*flags):
    return lambda: run.config_from_args(run.parse_args([*flags, __file__]))


def nodes(text):
    return lambda: run.parse_min_max_nnodes(text)


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        ("three numbers of nodes", nodes("2:20:30"), RuntimeError, "2:20:30"),
        ("no number of nodes", nodes("1:y"), ValueError, "1:y"),
        ("no nodes", asked("--nnodes=0"), AssertionError, "got 0"),
        ("fewer nodes", asked("--nnodes=3:2"), AssertionError, "got 3:2"),
        ("restarts", asked("--max-restarts=-1"), AssertionError, "at least 0, got -1"),
        (
            "workers",
            lambda: run.determine_local_world_size("unknown"),
            ValueError,
            "^Unsupported nproc_per_node.*unknown",
        ),
        ("module without Python", asked("--no-python", "--module"), ValueError, "no.python|module"),
        ("logs", asked("--logs-specs=DOES_NOT_EXIST"), ValueError, "DOES_NOT_EXIST"),
        ("ranks", asked("--local-ranks-filter=a"), ValueError, "list of integers"),
        ("options", asked("--rdzv-conf=a=1,b"), ValueError, "'b' must have a value specified"),
    ),
)
def test_command_lines(call, kinds, text, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    refuses(call, kinds, text)
