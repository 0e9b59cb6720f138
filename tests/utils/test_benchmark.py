"""Times of statements. Tables and measurements print as PyTorch's do, which printed these."""

from __future__ import annotations

import pytest

import weft as torch
from weft.utils.benchmark import Compare, Measurement, TaskSpec, Timer, select_unit, trim_sigfig


def measured(times, stmt="x + y", setup="pass", **labels):
    return Measurement(10, times, TaskSpec(stmt, setup, **labels))


def test_a_measurement():
    one = measured([1e-4, 1.1e-4, 1.2e-4, 1.15e-4, 1.5e-4, 1.02e-4], label="L", sub_label="s", description="d")
    assert (one.median, one.title, one.as_row_name, one.num_threads) == (pytest.approx(1.125e-5), "L: s", "s", 1)
    assert one.significant_figures == 1
    assert repr(one).split("\n")[1:] == [
        "L: s",
        "d",
        "  Median: 11.25 us",
        "  IQR:    1.48 us (10.40 to 11.88)",
        "  6 measurements, 10 runs per measurement, 1 thread",
        "  WARNING: Interquartile range is 13.1% of the median measurement.",
        "           This could indicate system fluctuation.",
    ]
    single = measured([1.0], stmt="a\nb", setup="x\ny")
    assert repr(single).split("\n")[1:] == [
        *["stmt:", "  a", "  b", "", "setup:", "  x", "  y", ""],
        *["  100.00 ms", "  1 measurement, 10 runs , 1 thread"],
    ]
    assert [m.times for m in Measurement.merge([single, single])] == [[0.1, 0.1]]


def test_units_and_figures():
    assert [select_unit(t)[0] for t in (2e-8, 2e-5, 2e-2, 2, 2e5)] == ["ns", "us", "ms", "s", "s"]
    assert (trim_sigfig(3.14159, 2), trim_sigfig(31415.9, 3)) == (3.1, 31400.0)


def test_a_table():
    table = Compare(
        [
            measured([1e-4] * 5, label="L", sub_label="s1", description="d1"),
            measured([2e-4, 2.1e-4, 2.9e-4, 2.15e-4, 9.5e-4], label="L", sub_label="s1", description="d2"),
            measured([3e-3] * 5, label="L", sub_label="s3", description="d2", num_threads=4),
        ]
    )
    table.highlight_warnings()
    assert str(table) == (
        "[--------------- L ---------------]\n"
        "          |   d1   |        d2     \n"
        "1 threads: ------------------------\n"
        "      s1  |  10.0  |   21.5 (! 37%)\n"
        "4 threads: ------------------------\n"
        "      s3  |        |   300.0       \n"
        "\n"
        "Times are in microseconds (us).\n"
        "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
    )
    table.colorize()
    assert "\033[92m" in str(table)
    with pytest.raises(ValueError, match=r"^Expected an instance of `Measurement`, got <class 'int'> instead\.$"):
        table.extend_results([1])


def test_every_run_is_computed():
    kept = []
    scope = {"x": torch.ones(4), "kept": kept}
    one = Timer("kept.append(x * 2)", globals=scope, label="double").timeit(3)
    assert (len(one.raw_times), one.number_per_run, one.label) == (1, 3, "double")
    assert one.median > 0
    assert [y.tolist() for y in kept] == [[2] * 4] * 5  # two runs are not counted


def test_statements_of_several_lines():
    calls = []
    several = Timer("y = torch.ones(2)\ny.sum()", setup="import weft as torch", label="two")
    seen = several.adaptive_autorange(min_run_time=1e-3, max_run_time=0.01, callback=lambda n, t: calls.append(n))
    assert calls == [seen.number_per_run] * len(seen.raw_times)
    assert len(Timer("pass").blocked_autorange(min_run_time=1e-3).raw_times) > 0


def test_other_statements_are_refused():
    with pytest.raises(ValueError, match=r"^Timer: stmt must be the text of a statement, not function"):
        Timer(lambda: 1)
    with pytest.raises(ValueError, match="only statements in Python"):
        Timer("int x = 1;", language="c++")
