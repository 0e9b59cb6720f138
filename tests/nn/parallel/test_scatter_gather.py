"""Parts of a batch for devices, and results of all in one."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import weft
from weft import nn
from weft.nn.parallel import gather, parallel_apply, replicate, scatter


class Pair(NamedTuple):
    left: object
    right: object


def lists(x):
    if isinstance(x, weft.Tensor):
        return x.tolist()
    if isinstance(x, dict):
        return {key: lists(value) for key, value in x.items()}
    return [lists(item) for item in x] if isinstance(x, (list, tuple)) else x


def test_parts_for_devices():
    x = weft.arange(3.0)
    found = scatter(x, ["cpu", "cpu"])
    assert isinstance(found, tuple)
    assert lists(found) == [[0, 1], [2]]
    assert lists(scatter(weft.arange(4.0).reshape(2, 2), ["cpu", "cpu"], dim=1)) == [[[0], [2]], [[1], [3]]]
    assert lists(scatter({"x": x, "y": [x, 5]}, ["cpu", "cpu"])) == [
        {"x": [0, 1], "y": [[0, 1], 5]},
        {"x": [2], "y": [[2], 5]},
    ]
    first, _ = scatter(Pair(x, "same"), ["cpu", "cpu"])
    assert isinstance(first, Pair)
    assert (first.left.tolist(), first.right) == ([0, 1], "same")
    assert scatter((), ["cpu", "cpu"]) == [(), ()]


def test_results_in_one():
    x, y = weft.ones(1, 2), weft.zeros(1, 2)
    assert gather([x, y], "cpu").tolist() == [[1, 1], [0, 0]]
    assert gather([x, y], "cpu", dim=1).tolist() == [[1, 1, 0, 0]]
    assert lists(gather([{"a": (x, None)}, {"a": (y, None)}], "cpu")) == {"a": [[[1, 1], [0, 0]], None]}
    found = gather([Pair(x, y), Pair(y, x)], "cpu")
    assert isinstance(found, Pair)
    with pytest.warns(UserWarning, match="^Was asked to gather along dimension 0, but all input tensors were scalars"):
        assert gather([weft.tensor(1.0), weft.tensor(2.0)], "cpu").tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"^All dicts must have the same number of keys$"):
        gather([{"a": x}, {}], "cpu")


def test_gradients_pass_through():
    x = weft.arange(4.0, requires_grad=True)
    gather(
        [part * factor for part, factor in zip(scatter(x, ["cpu"] * 2), (2, 3), strict=True)], "cpu"
    ).sum().backward()
    assert x.grad.tolist() == [2, 2, 3, 3]


def test_modules_are_applied_to_their_inputs():
    one, other = nn.Linear(2, 1), nn.Identity()
    x = weft.ones(1, 2)
    found = parallel_apply([one, other], [x, (x,)])
    assert found[0].tolist() == one(x).tolist()
    assert found[1] is x
    assert parallel_apply([lambda x, scale: x * scale], [x], [{"scale": 3}])[0].tolist() == [[3, 3]]
    with pytest.raises(AssertionError, match=r"^The number of modules 2 is not equal to the number of inputs 1$"):
        parallel_apply([one, other], [x])


def test_a_process_has_one_replica():
    module = nn.Linear(1, 1)
    assert replicate(module, ["cpu"]) == [module]
    assert replicate(module, []) == []
    with pytest.raises(RuntimeError, match="runs on one device"):
        replicate(module, ["cpu", "cpu"])
