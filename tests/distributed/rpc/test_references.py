"""References between processes."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job

LONG = ("members", "failures", "thousands")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["sharing", "methods", "late", "unreadable", *(pytest.param(one, marks=pytest.mark.soak) for one in LONG)],
)
def test_references(program, tmp_path):
    job.run("tests.distributed.rpc.references", program, 3, tmp_path)
