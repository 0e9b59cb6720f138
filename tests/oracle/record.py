"""Records PyTorch's answers: `PYTHONHASHSEED=0 python -m tests.oracle.record [PREFIX …]`.

A few small cases of every operator, form and dtype are computed and compared with the files in `answers/`. Only files
whose answers are missing or wrong are written; with prefixes, only those of operators whose names have one. The exit
status is 1 when a recorded answer was wrong.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from tests.oracle.cases import ANSWERS, Case, load, save
from tests.oracle.compare import arrays_differ
from tests.oracle.known import SIGN_FREE
from tests.oracle.samples import cases_of, entries, targets_of

_CONSIDERED = 24  # samples of each dtype to choose from
_MOST_BYTES = 6_000  # of one case
_MOST_CASES = {"float64": 4, "float32": 2, "bfloat16": 2, "complex64": 2, "int64": 2, "bool": 2}


def chosen(cases: Iterable[Case]) -> Iterator[Case]:
    """Small cases whose arguments are structured differently; the smallest where none is small."""
    cases = list(cases)
    taken: Counter[tuple[str, str]] = Counter()
    seen = set()
    least = min((case.nbytes for case in cases), default=0)
    for case in cases:
        group = case.form, case.dtype
        most = _MOST_CASES[case.dtype] if case.form == "function" else 1
        key = (*group, _structure(case))
        if taken[group] < most and case.nbytes <= max(_MOST_BYTES, least) and key not in seen:
            seen.add(key)
            taken[group] += 1
            yield case


def _structure(case: Case) -> str:
    """What distinguishes the arguments of a case, less the sizes of tensors."""
    return json.dumps([case.args, case.kwargs, [array.ndim for array in case.arrays]])


def _same(old: list[Case], new: list[Case]) -> bool:
    """Whether two recordings agree, up to rounding and free signs."""
    return len(old) == len(new) and all(
        _header(a) == _header(b)
        and len(a.arrays) == len(b.arrays)
        and not any(arrays_differ(x, y, 10) for x, y in zip(_signless(a), _signless(b), strict=True))
        for a, b in zip(old, new, strict=True)
    )


def _signless(case: Case) -> list[np.ndarray]:
    return [np.abs(x) for x in case.arrays] if case.op in SIGN_FREE else case.arrays


def _header(case: Case) -> str:
    return json.dumps([case.label, case.outputs, case.gradients])


def refresh(path: Path, new: list[Case]) -> str:
    """Compare one file with its cases and write it if need be. Says what was done."""
    if not path.exists():
        save(path, new)
        return "added"
    if _same(load(path), new):
        return "kept"
    save(path, new)
    return "changed"


def main() -> int:
    """Refresh every file, or those that are asked for; remove those of operators that are gone."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("set PYTHONHASHSEED=0: the operator database walks through sets of strings")
    ANSWERS.mkdir(exist_ok=True)
    done: dict[str, list[str]] = {"added": [], "kept": [], "changed": [], "removed": []}
    wanted = set()
    prefixes = tuple(sys.argv[1:])
    asked = {name: entry for name, entry in entries().items() if not prefixes or name.startswith(prefixes)}
    for name, entry in asked.items():
        cases = list(chosen(cases_of(entry, _CONSIDERED))) if targets_of(entry) else []
        if cases:
            path = ANSWERS / f"{name}.npz"
            wanted.add(path)
            done[refresh(path, cases)].append(name)
    for path in set() if prefixes else set(ANSWERS.glob("*.npz")) - wanted:
        path.unlink()
        done["removed"].append(path.stem)
    size = sum(path.stat().st_size for path in wanted)
    print(f"{len(wanted)} operators, {size / 1e6:.1f} MB: " + ", ".join(f"{len(v)} {k}" for k, v in done.items()))
    for name in done["changed"]:
        print(f"the recorded answers of {name} differed; they are written anew")
    return 1 if done["changed"] else 0


if __name__ == "__main__":
    sys.exit(main())
