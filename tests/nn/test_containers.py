"""Modules that hold modules or parameters."""

from __future__ import annotations

import pytest

import weft
from weft import nn


def names(container):
    return [type(module).__name__ for module in container]


def test_a_sequence_of_modules_is_a_list_and_a_function():
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    assert net(weft.ones(3, 1)).shape == (3, 2)
    net.append(nn.Tanh()).insert(1, nn.Sigmoid())
    assert names(net) == ["Linear", "Sigmoid", "ReLU", "Tanh"]
    assert list(net._modules) == ["0", "1", "2", "3"]
    assert names(net[1:3]) == ["Sigmoid", "ReLU"]
    assert type(net.pop(-1)).__name__ == "Tanh"
    del net[0]
    net[0] = nn.GELU()
    assert names(net) == ["GELU", "ReLU"]
    assert names((net + nn.Sequential(nn.Tanh())) * 2) == ["GELU", "ReLU", "Tanh"] * 2
    net *= 2
    assert len(net) == 4
    assert list(nn.Sequential({"a": nn.ReLU(), "b": nn.Tanh()})[:1]._modules) == ["a"]


def test_a_list_of_modules_prints_runs_on_one_line():
    listed = nn.ModuleList([nn.ReLU(), nn.ReLU()]) + nn.ModuleList([nn.Linear(1, 1)])
    assert repr(listed) == (
        "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Linear(in_features=1, out_features=1, bias=True)\n)"
    )
    listed.insert(0, nn.Tanh())
    listed += [nn.GELU()]
    del listed[1:3]
    assert names(listed) == ["Tanh", "Linear", "GELU"]
    assert names(listed[::2]) == ["Tanh", "GELU"]
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_a_dict_of_modules_keeps_their_order():
    found = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    found.update([("c", nn.GELU())])
    assert (list(found), list(found.keys()), len(found), "a" in found) == (["b", "a", "c"], ["b", "a", "c"], 3, True)
    assert type(found.pop("b")).__name__ == "ReLU"
    assert [name for name, _ in found.items()] == ["a", "c"]
    found.clear()
    assert not list(found.values())


def test_parameters_in_lists_and_dicts_are_registered():
    listed = nn.ParameterList([weft.ones(2), 3])
    listed += [nn.Parameter(weft.ones(1))]
    assert [name for name, _ in listed.named_parameters()] == ["0", "2"]
    assert len(listed[1:]) == 2
    assert repr(nn.ParameterList([weft.ones(2), 3])) == (
        "ParameterList(\n    (0): Parameter containing: [torch.float32 of size 2]\n    (1): Object of type: int\n)"
    )
    by_name = nn.ParameterDict({"a": weft.ones(2, 3), "b": "x"})
    assert [name for name, _ in by_name.named_parameters()] == ["a"]
    assert repr(by_name) == (
        "ParameterDict(\n    (a): Parameter containing: [torch.FloatTensor of size 2x3]\n"
        "    (b): Object of type: str\n)"
    )
    assert by_name.setdefault("c", weft.zeros(1)) is by_name["c"]
    assert by_name.get("d", 1) == 1
    assert by_name.pop("b") == "x"
    assert list(by_name.copy().items()) == list(by_name.items())
    assert list(by_name.fromkeys(["p", "q"], 3).items()) == [("p", 3), ("q", 3)]
    assert by_name.copy().popitem()[0] == "c"
    assert list(by_name) == ["a", "c"]
    assert len(list(by_name.values())) == len(by_name)
    by_name.clear()
    assert not len(by_name)


REFUSED = [
    ("nn.Sequential()[0]", IndexError, "index 0 is out of range"),
    ("nn.Sequential().insert(1, nn.ReLU())", IndexError, "Index out of range: 1"),
    ("nn.Sequential().insert(0, 3)", AssertionError, "module should be of type: <class 'weft.nn._module.Module'>"),
    (
        "nn.Sequential() * 0",
        ValueError,
        "Non-positive multiplication factor 0 for <class 'weft.nn._containers.Sequential'>",
    ),
    (
        "nn.Sequential() * 'x'",
        TypeError,
        r"unsupported operand type\(s\) for \*: <class 'weft.nn._containers.Sequential'>",
    ),
    (
        "nn.Sequential() + 3",
        ValueError,
        "add operator supports only objects of Sequential class, but <class 'int'> is given.",
    ),
    ("nn.ModuleList([3])", TypeError, "int is not a Module subclass"),
    ("nn.ModuleList().extend(3)", TypeError, "ModuleList.extend should be called with an iterable, but got int"),
    (
        "nn.ModuleDict(3)",
        TypeError,
        "ModuleDict.update should be called with an iterable of key/value pairs, but got int",
    ),
    ("nn.ModuleDict([3])", TypeError, "ModuleDict update sequence element #0 should be Iterable; isint"),
    ("nn.ModuleDict([(1, 2, 3)])", ValueError, "ModuleDict update sequence element #0 has length 3; 2 is required"),
    ("nn.ParameterList(3)", TypeError, "ParameterList.extend should be called with an iterable, but got int"),
    (
        "nn.ParameterDict({3: 3})",
        TypeError,
        "Index given to ParameterDict cannot be used as a key as it is not a string",
    ),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(text)
