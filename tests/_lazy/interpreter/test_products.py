"""Products on as many threads as pays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft._lazy.interpreter import products


def test_every_thread_can_compute_on_one(monkeypatch):
    blas = [one for one in products._blas() if one.get_num_threads() > 1]
    if not blas:
        pytest.skip("the products of this computer have one thread")
    before, during = [one.get_num_threads() for one in blas], []

    def product(x, y):
        during.append([one.get_num_threads() for one in blas])
        return x @ y

    monkeypatch.setattr(np, "matmul", product)
    x = np.ones((64, 128), np.float32)
    with ThreadPoolExecutor(2) as threads:
        for caller in (products._on_one_thread, lambda *xs: threads.submit(products._on_one_thread, *xs).result()):
            caller(x, x.T)
            assert during.pop() == [1] * len(blas)
            assert [one.get_num_threads() for one in blas] == before
