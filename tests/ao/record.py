"""Records what PyTorch shows in the programs: `python -m tests.ao.record`."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path

from tests.ao.graph_cases import GRAPH_CASES
from tests.ao.graph_programs import GRAPH_PROGRAMS
from tests.ao.programs import PROGRAMS, Shown

ALL = {**PROGRAMS, **GRAPH_PROGRAMS, **GRAPH_CASES}
ANSWERS = Path(__file__).parent / "answers.json.gz"


def recorded() -> dict[str, Shown]:
    """What PyTorch has shown, by program."""
    return {name: Shown(**shown) for name, shown in json.loads(gzip.decompress(ANSWERS.read_bytes())).items()}


def main() -> None:
    import torch
    import torch.ao.nn.intrinsic.qat
    import torch.ao.ns._numeric_suite
    import torch.ao.ns._numeric_suite_fx

    warnings.simplefilter("ignore")
    answers = {name: vars(program(torch)) for name, program in ALL.items()}
    ANSWERS.write_bytes(gzip.compress(json.dumps(answers).encode(), mtime=0))


if __name__ == "__main__":
    main()
