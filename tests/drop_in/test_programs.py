"""Programs in the style of PyTorch's examples, which import `torch`, run as they are by `python -m weft`."""

from __future__ import annotations

import json

import pytest

from tests.drop_in.record import FOLDER, LOSSES, PROGRAMS, losses_of

RECORDED = json.loads(LOSSES.read_text())
RANDOM = {"mnist", "gcn"}  # programs that drop or shuffle by the library's own generator after the first loss
LONG = {"actor_critic", "fast_neural_style", "rpc_parameter_server", "siamese"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG), id=name) for name in PROGRAMS]
)
def test_a_program_has_the_losses_that_it_has_under_pytorch(name, tmp_path):
    first, last = losses_of(name, "-m", "weft", cwd=tmp_path)
    expected = RECORDED[name]
    assert first == pytest.approx(expected[0], rel=1e-5, abs=1e-5)
    assert last == pytest.approx(expected[1], rel=0.3 if name in RANDOM else 1e-3, abs=0.05 if name in RANDOM else 0)


def test_the_programs_are_written_for_torch():
    assert RECORDED.keys() == set(PROGRAMS)
    for path in (FOLDER / "programs").glob("*.py"):
        text = path.read_text()
        assert "weft" not in text
        assert len(text.splitlines()) < 120
