"""The coverage tables of the last fresh comparison: `python -m tests.oracle.coverage` prints and writes them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.oracle.cases import DTYPES
from tests.oracle.known import reason_for_absence
from tests.oracle.replay import Result

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "build" / "oracle"
PAGE = _ROOT / "docs" / "coverage.md"

_HEAD = """# What is compared with PyTorch

Written by `make oracle` from the databases of torch 2.13.0's own tests. Each number counts calls whose values, dtypes
and shapes were compared in that dtype; *gradients* counts those whose gradients were. *Known* counts differences that
stay, whose reasons stand below the table.
"""


def keep(name: str, results: list[Result]) -> None:
    """Note the results of one operator for the table."""
    _RESULTS.mkdir(parents=True, exist_ok=True)
    row = {
        "dtypes": Counter(r.case.dtype for r in results),
        "forms": sorted({r.case.form for r in results}),
        "gradients": sum(bool(r.case.gradients) for r in results),
        "known": sorted({r.excuse for r in results if r.excuse}),
        "excused": sum(bool(r.excuse) for r in results),
        "failed": sum(bool(r.fault and not r.excuse) for r in results),
    }
    (_RESULTS / f"{name}.json").write_text(json.dumps(row))


def _rows() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(_RESULTS.glob("*.json"))}


def _line(name: str, row: dict[str, Any]) -> str:
    counts = [str(row["dtypes"].get(dtype, "")) for dtype in DTYPES]
    outcome = f"{row['failed']} fail" if row["failed"] else "passes" if row["forms"] else "no case"
    rest = [str(row["gradients"] or ""), str(row["excused"] or ""), outcome]
    return f"| {' | '.join([f'`{name}`', ', '.join(row['forms']), *counts, *rest])} |"


def section(what: str, rows: dict[str, dict[str, Any]], names: list[str]) -> str:
    """The table of the operators or modules in `rows`, and the list of those in `names` that have none."""
    columns = [what, "forms", *DTYPES, "gradients", "known", "result"]
    passing = sum(not row["failed"] for row in rows.values())
    calls = sum(sum(row["dtypes"].values()) for row in rows.values())
    missing = [name for name in names if name not in rows]
    return "\n".join(
        [
            f"## {what.capitalize()}s\n",
            f"{passing} of {len(rows)} {what}s pass, in {calls} calls. {len(missing)} of the database's {len(names)} "
            "entries have no counterpart.\n",
            f"| {' | '.join(columns)} |",
            f"|{'---|' * len(columns)}",
            *(_line(name, row) for name, row in rows.items()),
            f"\n### Known differences of {what}s\n",
            *(f"- `{name}`: {reason}." for name, row in rows.items() for reason in row["known"]),
            f"\n### Entries of the {what} database without a counterpart\n",
            *(absence(missing) or ["None."]),
            "",
        ]
    )


def absence(missing: list[str]) -> list[str]:
    """The entries that have no counterpart, by reason."""
    reasons: dict[str, list[str]] = {}
    for name in sorted(missing):
        reasons.setdefault(reason_for_absence(name) or "not done", []).append(f"`{name}`")
    return [f"- {', '.join(found)}: {reason}." for reason, found in reasons.items()]


def main() -> None:
    """Print the tables and write them to `docs/coverage.md`."""
    from tests.oracle import modules, names, samples  # need torch, which noting results does not
    from tests.oracle.distributed import report

    rows, parts = _rows(), [_HEAD]
    for what, entries in (("operator", samples.entries()), ("module", modules.entries())):
        parts.append(section(what, {name: row for name, row in rows.items() if name in entries}, list(entries)))
    text = "\n".join([*parts, names.section(), report.written()])
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
