"""Replicas of the examples' models end where one process on the whole batches does."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import numpy as np
import pytest

import weft.distributed as dist
from tests.distributed.replicas import MODELS, train


def compare(found, expected):
    for replica in found:
        assert replica.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(replica[name], found[0][name], err_msg=name)
            np.testing.assert_allclose(replica[name], value, rtol=0, atol=1e-10, err_msg=name)


def by_threads(name, size, **options):
    def body(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=120))
        return train(name, rank, size, **options)

    return dist.run_threads(body, nprocs=size)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "steps", "cap"), [("gpt", 2, 1e-3), ("resnet", 1, None)])
def test_two_threads_equal_one_process(name, steps, cap):
    compare(by_threads(name, 2, steps=steps, bucket_cap_mb=cap), train(name, steps=steps))


@pytest.mark.soak
@pytest.mark.parametrize(
    "options", [{}, {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 1e-4}]
)
@pytest.mark.parametrize("name", MODELS)
def test_four_threads_equal_one_process(name, options):
    compare(by_threads(name, 4, **options), train(name))


@pytest.mark.soak
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_processes_equal_one_process(name, size, tmp_path):
    files = [tmp_path / f"{rank}.npz" for rank in range(size)]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.distributed.replicas",
                name,
                "shm",
                str(rank),
                str(size),
                f"file://{tmp_path}/store",
                str(file),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * size, errors
    compare([dict(np.load(file)) for file in files], train(name))
