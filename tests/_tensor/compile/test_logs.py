"""Why functions are captured again, or not at all, in logs."""

from __future__ import annotations

import logging

import pytest

import weft as torch

FACTORS = {"scale": 2.0}


def test_recompiles_say_what_has_changed(caplog):
    @torch.compile
    def scaled(x):
        return x * FACTORS["scale"]

    with caplog.at_level(logging.DEBUG, "weft._tensor.compile"):
        scaled(torch.ones(2))
        assert not caplog.records
        scaled(torch.ones(3))
        FACTORS["scale"] = 3.0
        assert scaled(torch.ones(2)).tolist() == [3, 3]
        scaled(torch.ones(2))
    lead = "scaled is captured again, since this has changed: "
    assert [record.getMessage().removeprefix(lead) for record in caplog.records] == [
        "arguments, modes or defaults",
        "`FACTORS['scale']`",
    ]
    assert {record.name.rpartition(".")[2] for record in caplog.records} == {"__recompiles"}


def test_graph_breaks_say_what_prevents_a_capture(caplog):
    @torch.compile
    def read(x):
        return x * x.sum().item()

    with caplog.at_level(logging.DEBUG, "weft._tensor.compile"):
        with pytest.warns(UserWarning, match="it runs uncaptured"):
            read(torch.ones(2))
        read(torch.ones(2))
    first, second = (record.getMessage() for record in caplog.records)
    assert first == second
    assert first.startswith("read needs a tensor's value at ")
    assert first.endswith("it runs uncaptured")
