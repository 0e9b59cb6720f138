"""Workers that do not share memory."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import far, job


@pytest.mark.parametrize("program", far.PROGRAMS)
def test_long_tensors_by_tcp(program, tmp_path):
    job.run(far.__name__, program, 2, tmp_path)
