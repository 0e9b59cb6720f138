"""Annotated programs run as Python."""

# ruff: noqa: UP006, UP007, UP035, UP045  types as annotated programs write them

from __future__ import annotations

import typing
from typing import Any, Dict, List, Optional, Tuple, Union, cast

import pytest

import weft as torch
from weft import jit, nn
from weft.errors import ArgumentError, ModuleError


def test_an_annotated_program_runs():
    @jit.script
    def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return x * by

    class Net(jit.ScriptModule):
        count: jit.Final[int]
        __constants__ = ("count",)

        def __init__(self):
            super().__init__()
            self.count = 3
            self.sizes = jit.annotate(List[int], [])
            self.flag = jit.Attribute(True, bool).value

        @jit.script_method
        def forward(self, x):
            return self.exported(x) if not jit.is_scripting() else self.ignored(x)

        @jit.export
        def exported(self, x):
            return scaled(x) * self.count

        @jit.ignore
        def ignored(self, x):
            raise NotImplementedError

        @jit.ignore(drop=True)
        def dropped(self, x):
            return x

        @jit.unused
        def unused(self, x):
            return x

    net = jit.script(Net())
    assert net(torch.ones(2)).tolist() == [6, 6]
    assert net.dropped(1) == net.unused(1) == 1
    assert jit.Final is typing.Final
    assert jit.freeze(net.eval()) is net
    assert jit.optimize_for_inference(net) is net


@pytest.mark.parametrize(
    ("thing", "kind", "found"),
    [
        ([1, 2], List[int], True),
        ([1, "a"], List[int], False),
        ([], List[str], True),
        ({"a": 1}, Dict[str, int], True),
        ({"a": "b"}, Dict[str, int], False),
        ((1, "a"), Tuple[int, str], True),
        ((1, 2), Tuple[int, str], False),
        ((1,), Tuple[int, str], False),
        ((1, 2, 3), tuple[int, ...], True),
        (None, Optional[int], True),
        ("a", Union[int, List[str]], False),
        (["a"], int | list[str], True),
        (3, (str, int), True),
        (None, None, True),
        ([[1]], List[List[int]], True),
        (3, typing.Any, True),
    ],
)
def test_isinstance(thing, kind, found):
    assert jit.isinstance(thing, kind) is found


def test_fork_and_wait():
    futures = [jit.fork(torch.add, torch.ones(2), n, alpha=2) for n in range(3)]
    assert [jit.wait(future).tolist() for future in futures] == [[1, 1], [3, 3], [5, 5]]
    failed = jit.fork(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        jit.wait(failed)


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="expected a function, a module or a class, got int"):
        jit.script(3)
    with pytest.raises(ArgumentError, match=r"Argument to @torch\.jit.ignore must be a bool or a function but got 3"):
        jit.ignore(3)
    with pytest.raises(ArgumentError, match=r"without a contained type\. Please add a contained type"):
        jit.isinstance([1], List)
    with pytest.raises(ModuleError, match="Freezing is currently only implemented for modules in eval mode"):
        jit.freeze(nn.Linear(1, 1))
    with pytest.raises(ArgumentError, match="expected a module, got int"):
        jit.freeze(cast("Any", 3))
    with pytest.raises(ArgumentError, match=r"expected the future that jit\.fork returned, got int"):
        jit.wait(cast("Any", 3))


def test_switches_without_effect():
    with jit.optimized_execution(False), jit.strict_fusion():
        jit.enable_onednn_fusion(True)
    assert not jit.onednn_fusion_enabled()
    assert jit.set_fusion_strategy([("STATIC", 2)]) == []
    assert jit.run_frozen_optimizations(nn.Linear(1, 1)) is None
    for same in (jit.script_if_tracing, jit.interface):
        assert same(test_fork_and_wait) is test_fork_and_wait
