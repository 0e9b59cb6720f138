"""Traced programs have PyTorch's graphs and numbers, and its files with them are read."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

import weft
from tests.fx.described import numbers, tensors, traced
from tests.fx.programs import PROGRAMS, REFUSED
from tests.fx.record import ANSWERS, answers

torch = pytest.importorskip("torch")
torch.fx.PH = torch.fx._symbolic_trace.PH

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]


def test_what_is_recorded_is_what_pytorch_does():
    assert json.loads(json.dumps(answers(torch))) == json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_the_same_numbers(program):
    (_, theirs), (_, ours) = traced(torch, program), traced(weft, program)
    ours.load_state_dict({name: weft.from_numpy(x.numpy().copy()) for name, x in theirs.state_dict().items()})
    expected = flat(numbers(theirs(*tensors(torch, program.inputs))))
    assert flat(numbers(ours(*tensors(weft, program.inputs)))) == pytest.approx(
        expected, rel=1e-5, abs=1e-5, nan_ok=True
    )


def flat(result: Any) -> list[Any]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list):
        return [x for part in result for x in flat(part)]
    return [result] if isinstance(result, int | float) else []


@pytest.mark.parametrize("name", REFUSED)
def test_the_same_is_refused(name):
    kinds = []
    for framework in (torch, weft):
        with pytest.raises(Exception, match=r".") as error:
            framework.fx.symbolic_trace(REFUSED[name](framework))
        kinds.append(next(kind for kind in type(error.value).__mro__ if kind.__module__ == "builtins"))
        text = str(error.value)
    assert kinds[0] is kinds[1]
    assert text


FILES = ["residual", "transformer", "parameters_and_buffers", "math_functions", "operators"]


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.name in FILES], ids=lambda program: program.name)
def test_files_of_pytorch_are_read(program):
    module = traced(torch, program)[1]
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = weft.load(file, weights_only=False)
    expected = flat(numbers(module(*tensors(torch, program.inputs))))
    assert flat(numbers(loaded(*tensors(weft, program.inputs)))) == pytest.approx(expected, rel=1e-5, abs=1e-5)
