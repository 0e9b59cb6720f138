"""The examples of remote calls, at a small size."""

from __future__ import annotations

import re

import pytest

from tests.programs import left_in, numbers, printed


@pytest.mark.slow
def test_calls_that_are_answered_together_get_the_same_answers(tmp_path):
    out = printed(tmp_path, "rpc/batching.py", "--calls", "32", "--batch", "8", "--width", "16", "--clients", "1")
    assert numbers(r"^largest difference of the answers: (.*)$", out)[0] < 1e-5
    (alone,) = numbers(r"^one by one: ([\d]+) calls/s$", out.replace(",", ""))
    (together,) = numbers(r"^in batches of 8: (\d+) calls/s [\d.]+ times as many$", out.replace(",", ""))
    assert min(alone, together) > 0
    assert left_in(tmp_path) == []


@pytest.mark.soak
def test_an_rnn_over_two_workers_learns_characters(tmp_path):
    sizes = ["--batch", "8", "--length", "16", "--width", "16", "--hidden", "32", "--lr", "0.02"]
    out = printed(tmp_path, "rpc/rnn.py", "--steps", "60", *sizes)
    perplexities = numbers(r"^step \d+: perplexity ([\d.]+)$", out)
    assert len(perplexities) == 5
    assert perplexities[-1] < 0.5 * perplexities[0]
    assert left_in(tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize(("options", "updates"), [([], 240), (["--together"], 120)])
def test_trainers_share_the_parameters_of_a_server(tmp_path, options, updates):
    out = printed(tmp_path, "rpc/parameter_server.py", "--steps", "120", "--hidden", "32", *options)
    losses = re.findall(r"^trainer[01]: loss ([\d.]+) at first, ([\d.]+) in the end$", out, re.MULTILINE)
    assert len(losses) == 2
    assert all(float(last) < 0.5 * float(first) for first, last in losses)
    (made, accuracy), *_ = re.findall(r"^(\d+) updates in .* s; ([\d.]+)% of 359 held-out", out, re.MULTILINE)
    assert int(made) == updates
    assert float(accuracy) > 80
    assert left_in(tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("options", [[], ["--batch"]])
def test_an_agent_with_observers_keeps_a_pole_up_for_longer(tmp_path, options):
    out = printed(tmp_path, "rpc/reinforcement.py", *options)
    steps = numbers(r"^round \d+: the pole stands for (\d+) steps on average$", out)
    assert len(steps) == 6
    assert steps[-1] > 1.5 * steps[0]
    assert left_in(tmp_path) == []


@pytest.mark.soak
def test_micro_batches_travel_through_stages(tmp_path):
    sizes = ["--stages", "2", "--width", "32", "--batch", "64", "--parts", "1", "4", "--steps", "10"]
    out = printed(tmp_path, "rpc/pipeline.py", *sizes)
    assert numbers(r"^micro-batches: (\d+), a step takes", out) == [1, 4]
    losses = re.findall(r"loss from ([\d.]+) to ([\d.]+)$", out, re.MULTILINE)
    assert float(losses[-1][1]) < 0.7 * float(losses[0][0])
    assert left_in(tmp_path) == []


@pytest.mark.soak
def test_replicas_learn_with_one_remote_embedding(tmp_path):
    out = printed(tmp_path, "rpc/ddp_rpc.py", "--steps", "60", "--words", "40")
    losses = re.findall(r"^trainer[01]: loss from ([\d.]+) to ([\d.]+), ", out, re.MULTILINE)
    assert len(losses) == 2
    assert all(float(last) < 0.5 * float(first) for first, last in losses)
    assert out.endswith("\nreplicas are equal: True\n")
    assert left_in(tmp_path) == []
