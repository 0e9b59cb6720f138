"""What `weft top` works out of the reports of a job, and how it shows it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from weft._base.activity import SIZE, read
from weft._tools.tables import text
from weft._tools.top.ranks import Window, duration
from weft._tools.top.view import render
from weft.distributed.elastic._job_report import JobReport, NodeReport, WorkerReport
from weft.distributed.elastic.agent.server._job_metrics import metrics_page

NOTHING = read(memoryview(bytearray(SIZE)), 0.0).numbers | {"attached": 1.0}


def worker(rank, time, steps=0, step=0.1, pid=None, process="running", **numbers):
    """A worker that has made so many steps, the last one now, each of `step` seconds."""
    made = {"steps": steps, "step_ended": time, "step_seconds": step, "progress": time} if steps else {}
    kept = {name: numbers.pop(name) for name in ("waits_for", "wait", "compilation", "reported") if name in numbers}
    return WorkerReport(rank, rank, pid or 100 + rank, process, time, 1 << 20, NOTHING | made | numbers, **kept)


def job(seconds, *workers, nodes=None, **fields):
    nodes = nodes or (NodeReport(0, "here", 1, workers=workers),)
    return JobReport("j", "train.py", fields.pop("state", "HEALTHY"), seconds, fields.pop("restarts", 0), 3, nodes)


def window(*reports):
    window = Window()
    for report in reports:
        window.add(report)
    return window


def states(*reports):
    return [rank.state for rank in window(*reports).ranks()]


def test_a_report_survives_json():
    report = job(1.5, worker(0, 7.0, steps=2, waits_for="data", wait=("DataLoader", 0.5), reported={"loss": 1.0}))
    again = JobReport.from_json(report.to_json())
    assert again.to_json() == report.to_json()
    assert tuple(again.nodes[0].workers[0].wait) == ("DataLoader", 0.5)
    for other in ("{}", "[]", "alive", '{"nodes": [3]}', '{"nodes": [{"workers": []}]}'):
        with pytest.raises(ValueError):  # noqa: PT011
            JobReport.from_json(other)


def test_rates_are_means_over_the_window():
    first = worker(0, 10.0, steps=5, tokens=500, tokens_ended=10.0, tokens_rate=1.0, data_seconds=1.0)
    last = worker(0, 14.0, steps=25, tokens=4500, tokens_ended=14.0, tokens_rate=1.0, data_seconds=2.0, calls_served=8)
    (rank,) = window(job(1, first), job(5, last)).ranks()
    assert (rank.step_seconds, rank.tokens_per_second, rank.samples_per_second) == (0.2, 1000, None)
    assert rank.shares == {"data": 0.25, "collectives": 0, "calls": 0}
    assert rank.calls_served_per_second == 2
    (rank,) = window(job(1, first)).ranks()  # of the worker itself, where there is only one report
    assert (rank.step_seconds, rank.tokens_per_second, rank.shares) == (0.1, 1, {})


def test_a_rate_falls_once_nothing_comes_any_more():
    reports = [
        job(at, worker(0, at, samples=min(at, 4) * 10, samples_ended=min(at, 4.0), samples_rate=10, progress=at))
        for at in (2.0, 4.0, 10.0)
    ]
    assert window(*reports[:2]).ranks()[0].samples_per_second == 10
    assert window(*reports).ranks()[0].samples_per_second == 20 / 8


def test_the_window_has_an_end():
    reports = [job(at, worker(0, float(at), steps=at)) for at in range(1, 60)]
    (rank,) = window(*reports).ranks()
    assert rank.step_seconds == 1
    assert len(window(*reports)._reports) <= 13


def test_a_restarted_worker_begins_anew():
    before, after = worker(0, 10.0, steps=500), worker(0, 20.0, steps=3, step=0.5, pid=7)
    (rank,) = window(job(1, before), job(11, after)).ranks()
    assert (rank.steps, rank.step_seconds, rank.shares) == (3, 0.5, {})


def test_who_makes_others_wait_is_slow():
    def reports(*waits):
        """Two of a job of which each rank has waited so much of the second between, for the others."""
        before = [worker(rank, 10.0, steps=10) for rank in range(len(waits))]
        after = [worker(rank, 11.0, steps=20, collectives_seconds=wait) for rank, wait in enumerate(waits)]
        return job(1, *before), job(2, *after)

    assert states(*reports(0.8, 0.8, 0.1, 0.8)) == ["ok", "ok", "slow", "ok"]
    assert states(*reports(0.8, 0.1)) == ["ok", "slow"]
    assert states(*reports(0.5, 0.5, 0.5)) == ["ok", "ok", "ok"]
    assert states(*reports(0.98, 0.95)) == ["ok", "ok"]  # both do little else than wait
    assert states(*reports(0.0)) == ["ok"]


def test_who_is_slow_where_nobody_waits():
    before = [worker(rank, 10.0, steps=10) for rank in range(3)]
    after = [worker(0, 20.0, steps=110), worker(1, 20.0, steps=60), worker(2, 20.0, steps=110)]
    assert states(job(1, *before), job(11, *after)) == ["ok", "slow", "ok"]


def test_ranks_without_progress():
    late = {"step_ended": 50.0, "progress": 50.0}
    assert states(job(1, worker(0, 59.0, steps=9, **late))) == ["ok"]
    assert states(job(1, worker(0, 61.0, steps=9, **late))) == ["stuck"]
    assert states(job(1, worker(0, 61.0, steps=9, step=2.0, **late))) == ["ok"]  # its steps take long
    assert states(job(1, worker(0, 61.0, steps=9, compilation=("train.py:3", 11.0), **late))) == ["ok"]
    waits = {"waits_for": "collectives", "wait": ("all_reduce", 11.0), **late}
    assert states(job(1, worker(0, 61.0, steps=9, **waits))) == ["waits"]
    assert states(job(1, worker(0, 61.0, steps=9, **waits | {"waits_for": "data"}))) == ["stuck"]
    assert states(job(1, worker(0, 61.0))) == ["ok"]  # has not begun
    for kind, state in (("collectives", "waits"), ("calls", "waits"), ("data", "stuck")):  # before the first step
        assert states(job(1, worker(0, 61.0, waits_for=kind, wait=("all_reduce", 11.0)))) == [state]
        assert states(job(1, worker(0, 61.0, waits_for=kind, wait=("all_reduce", 9.0)))) == ["ok"]
    assert states(job(1, worker(0, 61.0, steps=9, process="stopped", **late))) == ["stopped"]
    silent = NodeReport(1, "there", 2, answers=False, workers=(worker(0, 61.0, steps=9),))
    assert states(job(1, nodes=(silent,))) == ["silent"]


def test_an_alert_sees_a_job_that_hangs_before_its_first_step():
    pytest.importorskip("prometheus_client")
    workers = (worker(0, 61.0), worker(1, 61.0, steps=3, progress=31.0), replace(worker(2, 61.0), numbers={}))
    page = metrics_page("j", NodeReport(0, "here", 1, workers=workers)).text
    told = re.findall(r'weft_seconds_since_progress{job="j",rank="(.)"} (.*)', page)
    assert told == [("0", "60.0"), ("1", "30.0")]  # the first since it began to write, at 1.0


def cells(view):
    return [re.split("  +", line.strip()) for line in text(view).splitlines()]


def test_the_view():
    before = [worker(rank, 10.0, steps=10, tokens=1000, tokens_ended=10.0, tokens_rate=1) for rank in range(2)]
    after = [
        worker(rank, 12.0, steps=20, tokens=33_000, tokens_ended=12.0, tokens_rate=1, compilations=2,
               compile_seconds=1.25, collectives_seconds=wait, reported={"loss": 0.5})
        for rank, wait in enumerate((1.5, 0.1))
    ]  # fmt: skip
    head, columns, *rows = cells(render(window(job(7, *before), job(9, *after, restarts=1))))
    assert head == ["train.py, job j: running for 9.0 s, 2 ranks on 1 node, restart 1 of 3"]
    names = ["rank", "process", "state", "step", "step time", "tokens/s", "compiled", "data", "collectives", "memory"]
    assert columns == names
    numbers = ["20", "200 ms", "16 k", "2 in 1.2 s", "0 %"]
    assert rows == [
        ["0", "100", "ok", *numbers, "75 %", "1.0 MB", "loss 0.5"],
        ["1", "101", "slow", *numbers, "5 %", "1.0 MB", "loss 0.5"],
        ["all", "200 ms", "32 k", "2.1 MB"],
    ]


def test_the_view_of_several_nodes():
    here = NodeReport(0, "a", 1, workers=(replace(worker(0, 61.0, steps=9), numbers={}),))
    late = {"step_ended": 20.0, "progress": 20.0, "wait": ("all_reduce", 41.0), "waits_for": "collectives"}
    there = NodeReport(1, "b", 2, workers=(worker(1, 61.0, steps=9, **late),))
    gone = NodeReport(2, "c", 3, answers=False)
    _, columns, first, second, *_, last = cells(render(window(job(9, nodes=(here, there, gone)))))
    assert columns[:3] == ["rank", "node", "process"]
    assert first[:4] == ["0", "0 a", "100", "ok"]
    assert first[-1] == "tells nothing of what it does"
    assert second[:4] == ["1", "1 b", "101", "waits"]
    assert second[-1] == "no step for 41 s, in all_reduce for 41 s"
    assert last == ["no answer from node 2 c"]


def test_durations():
    assert list(map(duration, (2e-6, 0.0123, 0.25, 3.14159, 61, 600, 9000))) == [
        "2 µs",
        "12.3 ms",
        "250 ms",
        "3.1 s",
        "61 s",
        "10 min",
        "2 h 30 min",
    ]
