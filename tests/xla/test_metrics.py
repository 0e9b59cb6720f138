"""Counts of compilations, executions and transfers."""

from __future__ import annotations

import re

import pytest

import weft as torch
from weft._lazy import metrics
from weft.xla.core import xla_model as xm
from weft.xla.debug import metrics as met


def total(name):
    data = met.metric_data(name)
    return 0 if data is None else data[0]


def test_transfers():
    x = torch.ones(3, 2)
    there = x.to("xla")
    assert total("TransferToDeviceTime") == met.counter_value("CreateXlaTensor") == 1
    assert met.metric_data("OutboundData")[1] == 24
    there.tolist()
    there.cpu()
    assert total("TransferFromDeviceTime") == 2
    assert met.metric_data("InboundData")[1] == 48
    torch.tensor([1.0], device="xla")
    assert total("TransferToDeviceTime") == 2


def test_the_cpu_is_not_counted():
    (torch.ones(3) + 1).tolist()
    assert met.metric_names() == met.counter_names() == []
    assert met.metric_data("ExecuteTime") is None
    assert met.counter_value("MarkStep") is None


@pytest.mark.compiled
def test_compilations_and_executions():
    x = torch.ones(7).to("xla")
    for runs in (1, 2, 3):
        y = (x * 3).tanh()
        xm.mark_step()
        assert total("ExecuteTime") == runs
        assert (
            total("CompileTime")
            == met.counter_value("UncachedCompile")
            == met.counter_value("CreateCompileHandles")
            == 1
        )
        assert (met.counter_value("CachedCompile") or 0) == runs - 1
        del y
    assert met.counter_value("MarkStep") == 3
    assert met.metric_data("CompileTime")[1] <= met.metric_data("ExecuteTime")[1]


def test_every_execution_is_counted_once():
    x = torch.ones(7).to("xla")
    for _ in range(3):
        (x * 5).sum().item()
    kinds = ("Interpreted", "UncachedCompile", "CachedCompile")
    assert total("ExecuteTime") == 3 == sum(met.counter_value(kind) or 0 for kind in kinds)


def test_there_are_no_fallbacks():
    torch.ones(3).to("xla").sort()[0].tolist()
    assert met.executed_fallback_ops() == []


def test_samples():
    for value in range(2000):
        metrics.sample("Mine", value, metrics.COUNT)
    count, accumulated, samples = met.metric_data("Mine")
    assert (count, accumulated) == (2000, 1999 * 1000)
    assert [value for _, value in samples] == list(range(2000 - 1024, 2000))
    times = [time for time, _ in samples]
    assert times == sorted(times)


def test_clearing():
    torch.ones(1).to("xla")
    met.clear_counters()
    assert met.counter_names() == []
    assert met.metric_names() == ["OutboundData", "TransferToDeviceTime"]
    xm.mark_step()
    met.clear_metrics()
    assert met.metric_names() == []
    assert met.counter_names() == ["MarkStep"]
    met.clear_all()
    assert met.counter_names() == []


def test_the_report():
    metrics.sample("CompileTime", 3_723_004_005_006)
    metrics.sample("CompileTime", 5_006)
    metrics.sample("OutboundData", 1536, metrics.BYTES)
    metrics.sample("Mine", 2.5, metrics.COUNT)
    metrics.count("MarkStep", 3)
    metrics.count("Other")
    report = met.metrics_report()
    assert re.search(
        r"Metric: CompileTime\n  TotalSamples: 2\n  Accumulator: 62m03s004ms010\.012us\n"
        r"(  ValueRate: .* / second\n  Rate: .* / second\n)?"
        r"  Percentiles: 1%=005\.006us; .*; 99%=62m03s004ms005\.006us\n",
        report,
    )
    assert "Metric: OutboundData\n  TotalSamples: 1\n  Accumulator: 1.50KB\n  Percentiles: 1%=1.50KB;" in report
    assert "Metric: Mine\n  TotalSamples: 1\n  Accumulator: 2.50\n" in report
    assert report.endswith("Counter: MarkStep\n  Value: 3\nCounter: Other\n  Value: 1\n")


def test_the_short_report():
    metrics.sample("CompileTime", 1)
    metrics.sample("OutboundData", 1, metrics.BYTES)
    metrics.count("MarkStep")
    metrics.count("Other")
    report = met.short_metrics_report()
    assert "CompileTime" in report
    assert "MarkStep" in report
    assert "OutboundData" not in report
    assert "Other" not in report
    assert met.short_metrics_report(["Other"], ["Missing"]) == "Counter: Other\n  Value: 1\n"


def test_reports_of_steps_in_a_file(monkeypatch, tmp_path):
    path = tmp_path / "metrics.txt"
    monkeypatch.setenv("XLA_METRICS_FILE", str(path))
    xm.mark_step()
    xm.mark_step()
    found = path.read_text(encoding="utf-8")
    assert re.findall(r"\[MetricsData; step=(\d)\]", found) == ["0", "1"]
    assert found.endswith("Counter: MarkStep\n  Value: 2\n\n")
