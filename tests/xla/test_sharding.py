"""Tensors split over the devices of one process."""

from __future__ import annotations

import os
import sys

import pytest

from tests.distributed.processes import Job
from tests.xla.sharding_cases import case


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    job = Job(
        lambda folder: [[sys.executable, "-m", "tests.xla.sharding_cases"]],
        1,
        lambda: tmp_path_factory.mktemp("sharding"),
        XLA_FLAGS=flags,
    )
    try:
        yield job
        job.end()
    finally:
        job.kill()


@pytest.mark.parametrize("function", case, ids=lambda function: function.__name__)
def test_four_devices(job, function):
    job.run(function)
