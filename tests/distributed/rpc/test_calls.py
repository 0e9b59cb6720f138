"""Calls between processes."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job
from weft.distributed import rpc

LONG = ("tensors", "timeouts", "many")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", ["values", "long_ones", "errors", *(pytest.param(one, marks=pytest.mark.soak) for one in LONG)]
)
def test_calls(program, tmp_path):
    job.run("tests.distributed.rpc.calls", program, 3 if program == "values" else 2, tmp_path)


def test_nothing_works_before_joining():
    for call in (
        lambda: rpc.rpc_sync("w1", len, ([],)), lambda: rpc.rpc_async("w1", len), lambda: rpc.remote("w1", len),
        rpc.get_worker_info, rpc.shutdown, lambda: rpc.RRef(1),
    ):  # fmt: skip
        with pytest.raises(
            RuntimeError, match=r"^RPC has not been initialized\. Call torch\.distributed\.rpc\.init_rpc first"
        ):
            call()


@pytest.mark.parametrize("name", ["a b", "", "x" * 128, "ä"])
def test_names_are_checked(name):
    with pytest.raises(RuntimeError, match=r"^Worker name must match"):
        rpc.init_rpc(name, rank=0, world_size=1)
