"""What is said of figures."""

from __future__ import annotations

import json

import weft as torch
from weft.profiler._collector import Collector
from weft.utils.bottleneck._figures import Figures
from weft.utils.bottleneck._inferred import Inferred, inferred_at
from weft.utils.bottleneck._verdict import verdict


def figures(rank=0, wall=10.0, operators=100, **seconds):
    """Of a process whose time is given by phase, the rest being Python."""
    phases = {"Python": wall - sum(seconds.values()), **seconds}
    return Figures(rank, wall, phases, 1.0, operators, 0, recorded_at=[("train.py(3): step", 100)], devices=["cpu"])


def test_a_rank_that_most_wait_for_comes_first():
    late = figures(2, collective=0.5, recording=0.25)
    others = [figures(rank, collective=7.0, recording=2.5) for rank in (0, 1, 3)]
    lines = verdict([*others[:2], late, others[2]]).splitlines()
    assert lines[:2] == [
        "The others wait for rank 2: it spent 0.50 of 10.00 s in collectives, they 7.00 s.",
        "Rank 2 is bound by Python: 95 % of its time.",
    ]
    text = "\n".join(lines)
    assert "The program's own Python took 9.25 of 10.00 s." in text  # of that rank
    assert "torch.compile" not in text  # recording is no part of it
    assert "exchanges" not in text
    assert "The program is bound by" not in text


def test_what_a_late_rank_does_is_not_communication():
    text = verdict([figures(0, collective=9.0), figures(1, collective=6.0, running=3.0)])
    assert "Rank 1 is bound by computation on cpu: 30 % of its time." in text
    assert "The rest: communication 60 %, Python 10 %" in text


def test_a_rank_that_waits_for_most_is_told():
    lines = verdict([figures(0, collective=5.0), *[figures(rank, collective=1.0) for rank in (1, 2)]]).splitlines()
    assert lines[0] == "The program is bound by Python: 77 % of its time."
    assert lines[-1] == "Rank 0 spent 5.00 s in collectives, rank 1 1.00 s: rank 0 waits for others."


def test_small_operators_are_not_computation():
    entry = figures(interpreting=7.0, running=1.0)
    entry.interpreted = 1_000_000
    text = verdict([entry])
    assert text.startswith("The program is bound by small operators: 70 % of its time.\n")
    assert "1000000 operators were interpreted in 7.00 s (7.0 us each)" in text
    assert "  train.py(3): step: 100" in text
    assert "Try: larger batches; fewer operators" in text
    assert "bfloat16" not in text
    entry.interpreted = 1000
    assert verdict([entry]).startswith("The program is bound by computation on cpu: 80 % of its time.\n")


def test_interpreted_operators_are_counted():
    notes = Collector()
    notes.start()
    x = torch.ones(4)
    for _ in range(50):
        x = x + 1
        x.tolist()
    notes.stop()
    entry = Figures.of(notes, [], 0, [])
    assert ("interpreting" in entry.seconds) == (entry.interpreted == 51)  # all, or none in the other tier


def test_inference_has_lines_and_changes():
    weight = torch.ones(8, 5)
    notes = Collector(stacks=True)
    notes.start()
    for size in range(3, 23):
        x = torch.ones(size, 8)
        torch.matmul(torch.matmul(x, weight), weight.T).sum().item()
    notes.stop()
    entries = {entry.line.rpartition("/")[2].partition("(")[0]: entry for entry in inferred_at(notes, 5)}
    products = next(entry for entry in inferred_at(notes, 5) if entry.operator == "matmul")
    assert entries.keys() == {"test_verdict.py"}
    assert products.inputs == 40
    assert products.changes == ("float32[3, 8]", "float32[22, 8]")
    assert 0 < products.seconds < 1e-9 * (notes.end_ns - notes.start_ns)


def test_lines_of_inference_and_numbers_of_one():
    entry = figures(operators=1, inference=8.0)
    entry.inferred_at = [
        Inferred("a.py(3): f", 7.5, "exp", 40, ("float32[1]", "float32[41]")),
        Inferred("a.py(4): f", 0.25, "pad", 9, ()),
        Inferred("a.py(5): f", 0.25, "sin", 1, ()),
    ]
    entry.compilations, entry.compiled_at = 1, [("a.py:3", 1, "the first graph")]
    text = verdict([Figures(**json.loads(json.dumps(entry.as_dict())))])  # as another rank's
    assert "  a.py(3): f: 7.50 s, exp in 40 different ways: float32[1], …, float32[41]\n" in text
    assert "  a.py(4): f: 0.25 s, pad in 9 different ways\n  a.py(5): f: 0.25 s\n" in text
    assert "1 program was compiled in 0.00 s. Most often at:\n  a.py:3: once, since: the first graph" in text
    assert "1 operator was recorded" in verdict([figures(operators=1, recording=8.0)])
