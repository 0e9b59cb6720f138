"""The programs' losses under PyTorch: `python -m tests.drop_in.record` writes them again (it needs torch)."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from tests.forked import ran

FOLDER = Path(__file__).parent
LOSSES = FOLDER / "losses.json"
SHARED = {"common", "cart_pole"}
"""Modules that the programs import."""
PROGRAMS = sorted(path.stem for path in (FOLDER / "programs").glob("*.py") if path.stem not in SHARED)


def losses_of(name: str, *how: str, cwd: str | Path) -> list[float]:
    """The first and the last loss that a program prints, which is run by `python HOW PROGRAM`."""
    done = ran([sys.executable, *how, str(FOLDER / "programs" / f"{name}.py")], cwd=cwd, timeout=250)
    assert done.returncode == 0, done.stderr
    match = re.search(r"^first (\S+) last (\S+)$", done.stdout, re.MULTILINE)
    assert match is not None, done.stdout
    return [float(text) for text in match.groups()]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        losses = {name: losses_of(name, cwd=folder) for name in PROGRAMS}
    LOSSES.write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    main()
