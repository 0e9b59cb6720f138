"""Writes what PyTorch makes of the programs in this folder to `answers.json`: `python -m tests.fx.record`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from tests.fx.edits import EDITS
from tests.fx.notes import NOTES
from tests.fx.passes import PASSES
from tests.fx.rewrites import REWRITES

EDITING = {**EDITS, **PASSES, **REWRITES, **NOTES}
ANSWERS = Path(__file__).with_name("answers.json")


def answers(torch: Any) -> dict[str, Any]:
    """The descriptions of all programs, and the results of all that change graphs."""
    from tests.fx.described import described, plain, traced
    from tests.fx.programs import PROGRAMS

    programs = {program.name: described(traced(torch, program)[1]) for program in PROGRAMS}
    return {"programs": programs, "edits": {name: plain(run(torch)) for name, run in EDITING.items()}}


def main() -> None:
    import torch

    torch.fx.PH = torch.fx._symbolic_trace.PH  # pyright: ignore
    warnings.simplefilter("ignore")
    ANSWERS.write_text(json.dumps(answers(torch), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
