"""Times of statements. Tables and measurements print as PyTorch's do, which printed these."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import weft as torch
from weft.utils.benchmark import (
    Compare,
    FuzzedParameter,
    FuzzedTensor,
    Fuzzer,
    Language,
    Measurement,
    ParameterAlias,
    TaskSpec,
    Timer,
    select_unit,
    trim_sigfig,
)
from weft.utils.benchmark.op_fuzzers.binary import BinaryOpFuzzer
from weft.utils.benchmark.op_fuzzers.unary import UnaryOpFuzzer
from weft.utils.benchmark.utils import common, compare, fuzzer, timer


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


def test_every_expression_is_computed():
    counted = []

    @torch.library.custom_op("benchmark_test::seen", mutates_args=())
    def seen(x: torch.Tensor) -> torch.Tensor:
        counted.append(x.numpy().size)
        return x + 1

    seen.register_fake(torch.empty_like)
    stmt = """
    for _ in range(2):
        seen(x)
    def inner():
        return seen(x)
    seen(x)
    y = 1
    """
    Timer(stmt, globals={"x": torch.ones(4), "seen": seen}).timeit(5)
    assert len(counted) == 3 * (5 + 2)


def test_what_there_is_not():
    with pytest.raises(NotImplementedError, match=r"^Timer\.collect_callgrind: .* weft\.utils\.flop_counter"):
        Timer("pass").collect_callgrind(number=10)
    assert Timer("1 + 1", language=Language.PYTHON).timeit(2).median > 0


def test_random_inputs():
    def fuzzer(**options):
        return Fuzzer(
            parameters=[
                [FuzzedParameter(f"k{i}", minval=1, maxval=64, distribution="loguniform") for i in range(3)],
                FuzzedParameter("step", distribution={1: 0.5, 3: 0.5}),
                FuzzedParameter("other", distribution={1: 0.5, ParameterAlias("k0"): 0.5}),
                FuzzedParameter("scale", minval=0.5, maxval=1.0, distribution="uniform"),
                FuzzedParameter("dim", minval=1, maxval=3, distribution="uniform", strict=True),
            ],
            tensors=[
                FuzzedTensor(
                    "x", ("k0", "k1", "k2"), ("step",), 0.3, min_elements=8, max_elements=4096, dim_parameter="dim"
                ),
                FuzzedTensor("y", ("other", 2), dtype=torch.int64, max_allocation_bytes=1000),
            ],
            **options,
        )

    examples = list(fuzzer(seed=3).take(40))
    for tensors, properties, params in examples:
        x, y = tensors["x"], tensors["y"]
        assert x.shape == tuple(params[f"k{i}"] for i in range(params["dim"]))
        assert 8 <= x.numel() <= 4096
        assert y.nbytes <= 1000
        assert properties["x"]["is_contiguous"] == x.is_contiguous()
        assert y.shape == (params["other"], 2)
        assert params["other"] in (1, params["k0"])
        assert 0.5 <= params["scale"] <= 1
    assert {x["x"].is_contiguous() for x, _, _ in examples} == {True, False}
    assert {params["dim"] for _, _, params in examples} == {1, 2, 3}
    again = list(fuzzer(seed=3).take(40))
    assert [p for _, _, p in again] == [p for _, _, p in examples]
    assert torch.equal(again[-1][0]["x"], examples[-1][0]["x"])

    limited = fuzzer(constraints=[lambda k0, k1, **_: k0 > k1], seed=1)
    assert all(params["k0"] > params["k1"] for _, _, params in limited.take(10))
    assert 0 < limited.rejection_rate < 1
    with pytest.raises(RuntimeError, match=r"1000 draws of k0, k1, .* did not meet"):
        next(iter(fuzzer(constraints=[lambda **_: False]).take(1)))


def test_random_inputs_of_operators():
    device = torch.device("meta")  # they are large

    def made(name, size, dtype, **_):
        return torch.empty(size, dtype=dtype, device=device)

    for inputs in (BinaryOpFuzzer(seed=1, dtype=torch.float16), UnaryOpFuzzer(seed=1)):
        for tensor in inputs._tensors:
            tensor._make = partial(made, tensor.name)
        examples = list(inputs.take(60))
        assert {params["dim"] for _, _, params in examples} == {1, 2, 3}
        powers = [params["k0"].bit_count() == 1 for _, _, params in examples]
        assert 0 < sum(powers) < 30
        for tensors, _, params in examples:
            x, y = tensors["x"], tensors.get("y", tensors["x"])
            assert x.shape == tuple(params[f"k{i}"] for i in range(params["dim"]))
            assert 4096 <= x.numel() <= 2**25
            assert (x + y).shape == x.shape
    assert {x["x"].is_contiguous() for x, _, _ in examples} == {True, False}
    broadcast = BinaryOpFuzzer(seed=1)._drawn(np.random.RandomState(3))
    assert all(broadcast[f"y_k{i}"] in (1, broadcast[f"k{i}"]) for i in range(3))


def test_parts_have_the_paths_of_pytorch():
    assert (common.Measurement, timer.Timer) == (Measurement, Timer)
    assert (compare.Compare, fuzzer.Fuzzer) == (Compare, Fuzzer)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"distribution": "normal"}, "unknown distribution 'normal'; choose 'loguniform'"),
        ({"distribution": "uniform", "minval": 1}, "needs minval and maxval"),
        ({"distribution": {1: 0.5, 2: 0.2}}, "must add up to 1"),
        ({"distribution": {1: 1.0}, "minval": 2}, "has no minval"),
    ],
)
def test_distributions_that_are_none(options, text):
    with pytest.raises(ValueError, match=text):
        FuzzedParameter("n", **options)
    with pytest.raises(ValueError, match=r"Duplicate names in parameters and tensors: \{'n'\}"):
        Fuzzer([FuzzedParameter("n", 1, 2, "uniform")], [FuzzedTensor("n", (1,))])
    cycle = Fuzzer([FuzzedParameter("a", distribution={ParameterAlias("a"): 1.0})], [])
    with pytest.raises(ValueError, match="the alias a -> a leads to no value"):
        next(cycle.take(1))
