"""Replicas within contexts of distributed autograd."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job


@pytest.mark.slow
def test_gradients_of_replicas_are_averaged_in_contexts(tmp_path):
    job.run("tests.distributed.autograd.replicas", "replicas", 3, tmp_path)
