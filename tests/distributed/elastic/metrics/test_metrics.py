"""Metrics, their handlers, and the decorators that publish them."""

from __future__ import annotations

import re
import socket
import time
from urllib.request import urlopen

import pytest

from weft.distributed.elastic import metrics
from weft.distributed.elastic.metrics.api import _handlers


class Collect(metrics.MetricHandler):
    def __init__(self):
        self.seen = []

    def emit(self, metric_data):
        self.seen.append(metric_data)

    def names(self):
        return [(data.group_name, data.name) for data in self.seen]


@pytest.fixture(autouse=True)
def put_back(monkeypatch):
    monkeypatch.setattr(_handlers, "default", metrics.NullMetricHandler())
    monkeypatch.setattr(_handlers, "by_group", {})


@pytest.fixture
def collected():
    handler = Collect()
    metrics.configure(handler)
    return handler


def test_by_default_everything_is_discarded(capsys):
    metrics.put_metric("name", 1)
    assert capsys.readouterr().out == ""
    assert metrics.NullMetricsHandler is metrics.NullMetricHandler
    assert metrics.ConsoleMetricsHandler is metrics.ConsoleMetricHandler


def test_groups_have_handlers(collected):
    own = Collect()
    metrics.configure(own, group="my_module")
    metrics.put_metric("a", 1, "my_module")
    metrics.put_metric("b", 2)
    metrics.getStream("other").add_value("c", 3)
    assert own.names() == [("my_module", "a")]
    assert collected.names() == [("torchelastic", "b"), ("other", "c")]
    assert abs(collected.seen[0].timestamp - time.time()) < 60
    assert collected.seen[0].value == 2


def test_only_handlers_are_configured():
    with pytest.raises(TypeError, match=r"^metrics\.configure\(\): handler must be a MetricHandler, got int$"):
        metrics.configure(3)


def test_the_console(capsys):
    metrics.configure(metrics.ConsoleMetricHandler(), group="my_app")
    metrics.put_metric("my_metric", 7, "my_app")
    assert re.fullmatch(r"\[\d+\.\d+\]\[my_app\]: my_metric=7\n", capsys.readouterr().out)


@metrics.prof
def calculate(x):
    return 1 / x


class Bar:
    @metrics.prof(group="own")
    def baz(self):
        return "result"


def test_prof_publishes_the_end_and_the_duration(collected):
    assert calculate(2) == 0.5
    assert Bar().baz() == "result"
    with pytest.raises(ZeroDivisionError):
        calculate(0)
    assert collected.names() == [
        ("torchelastic", "test_metrics.calculate.success"),
        ("torchelastic", "test_metrics.calculate.duration.ms"),
        ("own", "Bar.baz.success"),
        ("own", "Bar.baz.duration.ms"),
        ("torchelastic", "test_metrics.calculate.failure"),
        ("torchelastic", "test_metrics.calculate.duration.ms"),
    ]
    assert [data.value for data in collected.seen[:3:2]] == [1, 1]


def test_deprecated_forms(collected):
    with pytest.warns(FutureWarning, match=r"^Deprecated, use `@prof` instead$"):

        @metrics.profile("group")
        def step():
            pass

    step()
    with pytest.warns(FutureWarning, match=r"^Deprecated, use `put_metric"):
        metrics.publish_metric("group", "x", 1)
    assert collected.names() == [("group", "step.success"), ("group", "step.duration.ms"), ("group", "x")]


def test_elapsed_milliseconds():
    assert 2000 <= metrics.get_elapsed_time_ms(time.time() - 2) < 60_000
    metrics.initialize_metrics(metrics.MetricsConfig({"a": "b"}))
    assert metrics.MetricsConfig().params == {}


def test_prometheus():
    handler = metrics.PrometheusMetricHandler()
    try:
        metrics.configure(handler)
        for value in (2, 0.5):
            metrics.put_metric("step.duration.ms", value)
        metrics.put_metric('odd "name"\n', 1, "back\\slash")
        metrics.put_metric("done", True)
        with urlopen(f"http://127.0.0.1:{handler.port}/metrics", timeout=20) as page:
            assert page.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            lines = page.read().decode().split("\n")
        own = '{group="torchelastic",name="step.duration.ms"}'
        assert f"weft_metric_last{own} 0.5" in lines
        assert f"weft_metric_sum{own} 2.5" in lines
        assert f"weft_metric_count{own} 2" in lines
        assert r'weft_metric_last{group="back\\slash",name="odd \"name\"\n"} 1' in lines
        assert 'weft_metric_last{group="torchelastic",name="done"} 1' in lines
        assert "# TYPE weft_metric_last gauge" in lines
    finally:
        handler.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", handler.port))


def test_tensorboard(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    handler = metrics.TensorBoardMetricHandler(str(tmp_path))
    metrics.configure(handler)
    for value in (3, 4):
        metrics.put_metric("run_total", value)
    handler.close()
    found = loader.EventAccumulator(str(tmp_path))
    found.Reload()
    points = found.Scalars("torchelastic/run_total")
    assert [(point.step, point.value) for point in points] == [(0, 3), (1, 4)]
    assert abs(points[0].wall_time - time.time()) < 60
