"""Whether Weft does with a program what PyTorch does, and the same in every mode; the least program that shows it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from random import Random

import pytest
import torch

import weft
from tests.oracle.arrays import to_numpy, weft_to_numpy
from tests.oracle.random_programs.compare import NOTHING, Alike, Difference, bits, difference, near, numbers
from tests.oracle.random_programs.observe import Observer
from tests.oracle.random_programs.pytorch import saving_copies
from tests.oracle.random_programs.source import Run, run, text
from weft._base import config
from weft._base.state import using

see_torch = Observer(to_numpy)
see_weft = Observer(weft_to_numpy)

Judge = Callable[[Sequence[str]], Difference]

_CREATION = re.compile(r"(with .*: )?(t\d+) = torch\.(tensor|arange|full|zeros|ones)\(.*")

ROUNDED = re.compile(r"exp\(|sin\(|sigmoid|tanh|lerp|mean|prod|addcmul|0\.3333| / 3|@|complex(.|\n)* / ")
"""Lines whose results differ in the last bit: functions without a defined one, sums in another order."""

CALLS = 3  # of a compiled program: the first captures it


OWN_CHOICES = [
    (
        "whether the gradient of a gradient is zero or does not exist follows from how each formula is written",
        r"\.(requires_grad|is_leaf|grad_fn):",
        r"create_graph=True",
    ),
    (
        "integers that are assigned what requires a gradient require one",
        r"\.requires_grad: False, not True",
        r"dtype=torch\.(u?int|bool)|arange",
    ),
    (
        "a leaf whose shape was changed in place keeps the shape that gradients had to have before",
        r"not RuntimeError\(.*invalid gradient",
        r"_\(",
    ),
    (
        "overlapping parts of a conjugate are written, in some order",
        r"InPlaceError\(.*refer to a single memory location.*, not None|^line.*refer to a single",
        r"conj\(\)",
    ),
]
"""What nobody can rely on in PyTorch: (what, a difference of the kind, and what programs have that show it)."""


def against_pytorch(lines: Sequence[str]) -> Difference:
    """What Weft does otherwise than PyTorch."""
    with saving_copies():
        wanted = see_torch(run(lines, torch, saving_copies))
    shown = difference(wanted, see_weft(run(lines, weft)), near if ROUNDED.search(text(lines)) else numbers)
    for _, words, program in OWN_CHOICES:
        if re.search(words, shown.words) and re.search(program, text(lines)):
            return NOTHING
    return shown


def _alike(lines: Sequence[str]) -> Alike:
    """How results of one program in two modes are compared.

    What products of matrices add up first is XLA's choice; so is whether functions are computed in vectors, and whether
    the sum of what was expanded is a product.
    """
    return near if ROUNDED.search(text(lines)) or re.search(r"expand(.|\n)*(sum|mean)", text(lines)) else bits


def eagerly(lines: Sequence[str]) -> Difference:
    """What eager mode changes."""
    eager = run(lines, weft, around=lambda: using(eager=True))
    return difference(see_weft(run(lines, weft)), see_weft(eager), _alike(lines))


def with_reads(lines: Sequence[str]) -> Difference:
    """What is changed by reading tensors between the lines."""
    random = Random(len(lines))

    def read(so_far: Run) -> None:
        tensors = so_far.tensors
        if tensors and random.random() < 0.5:
            tensors[random.choice(sorted(tensors))].tolist()

    return difference(see_weft(run(lines, weft)), see_weft(run(lines, weft, between=read)), _alike(lines))


def in_tiers(lines: Sequence[str]) -> Difference:
    """What interpreting changes."""
    runs = []
    for tier in ("compiled", "interpreted"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(config, "TIER", tier)
            runs.append(see_weft(run(lines, weft)))
    return difference(*runs, near if ROUNDED.search(text(lines)) else numbers)


def compiled(lines: Sequence[str]) -> Difference:
    """What compiling changes: everything after the creations as one function, called some times. Reads are left out."""
    lines = [line for line in lines if not re.search(r"\br\d", line)]
    wanted = run(lines, weft)
    if wanted.errors:
        return NOTHING
    facts = see_weft(wanted)
    function, count = _function(lines, sorted(wanted.tensors))
    for _ in range(CALLS):
        found = run(lines[:count], weft)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is not captured
            found.scope |= function(**found.tensors)
        found.count = len(lines)
        if shown := difference(facts, see_weft(found), _alike(lines)):
            return shown
    return NOTHING


def _function(lines: Sequence[str], names: Sequence[str]) -> tuple[Callable[..., dict[str, weft.Tensor]], int]:
    """A compiled function of what the first lines create, which runs the others; and how many the first are."""
    creations = [
        re.fullmatch(r"(with .*: )?(t\d+) = torch\.(tensor|arange|full|zeros|ones)\(.*", line) for line in lines
    ]
    count = next((at for at, match in enumerate(creations) if match is None), len(lines))
    arguments = sorted({match[2] for match in creations[:count] if match})
    body = [*lines[count:], f"return dict({', '.join(f'{name}={name}' for name in names)})"]
    source = "\n    ".join([f"def program({', '.join(arguments)}):", *body])
    scope = Run(weft).scope
    exec(compile(source, "<program>", "exec"), scope)
    return weft.compile(scope["program"]), count


def smallest(lines: Sequence[str], judge: Judge) -> tuple[Sequence[str], Difference]:
    """The program without the lines that its difference does not need."""
    shown = judge(lines)
    shorter = True
    while shorter:
        shorter = False
        for at in reversed(range(len(lines))):
            rest = [*lines[:at], *lines[at + 1 :]]
            if (left := judge(rest)).kind == shown.kind:
                lines, shown, shorter = rest, left, True
    return lines, shown
