"""Writing random programs. PyTorch runs each line as it is written, so that the next one can fit what there is."""

from __future__ import annotations

import re
import warnings
from random import Random

import torch

from tests.oracle.random_programs.holes import NEEDS, Holes, is_apart
from tests.oracle.random_programs.lines import AROUND, CREATION, DTYPES, KINDS, WRITES, Kind
from tests.oracle.random_programs.pytorch import saving_copies
from tests.oracle.random_programs.source import Run, run

LIVE = 6  # tensors at most, so that everything can be compared with everything
ELEMENTS = 36
LARGEST = 1e4  # numbers beyond have lost what distinguishes them
ATTEMPTS = 20

TOLERATED = re.compile(
    "function that returns multiple views"  # each is a view like any other
    "|Expected isFloatingType"  # real gradients of complex results
    "|Expected !nested|INTERNAL ASSERT"  # assertions of PyTorch's own
)
"""What PyTorch refuses, and Weft does."""


class Writer:
    """Writes one program; `lines` is what stands so far."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.dtypes = self.random.sample(DTYPES, self.random.choice((1, 1, 2, 3)))
        if self.random.random() < 0.6:
            self.dtypes.append(self.random.choice(("float32", "float64")))
        self._run = Run(torch)
        self._refused: set[int] = set()  # numbers of lines

    def write(self) -> tuple[str, ...]:
        """Some creations and a dozen other lines; less where PyTorch refuses a backward pass, which ends a program."""
        for _ in range(self.random.randint(1, 3)):
            self._add(CREATION)
        for _ in range(self.random.randint(3, 14)):
            kind = self.random.choices(KINDS, [kind.weight for kind in KINDS])[0]
            if not self._add(kind):
                break
        return tuple(self.lines[: self._settled_lines()])

    def _settled_lines(self) -> int:
        """How many lines PyTorch takes and refuses as it did: what it does may depend on what was looked at before."""
        again = run(self.lines, torch, saving_copies).errors
        return min(
            {number for number in range(len(self.lines)) if (number in again) != (number in self._refused)},
            default=len(self.lines),
        )

    def _add(self, kind: Kind) -> bool:
        """Append a line that leaves a state worth going on from; False where the program has to end."""
        for _ in range(ATTEMPTS):
            line = self._line(kind)
            if line is None:
                return True
            held = {x.untyped_storage().data_ptr() for x in self._run.tensors.values()}
            error = self._run.step(line)
            if error is None and "create_graph=True)[0]" in line and not self._has_second_derivative(line):
                self._run = run(self.lines, torch, saving_copies)
                continue  # Weft may say that it has one, which is zero
            if error is None:
                line = self._agreed(line, held)
            if error is None and self._is_sound():
                self.lines.append(line)
                return True
            if error is not None and not self._is_tolerated(line, str(error)) and self.random.random() < 0.3:
                self._refused.add(len(self.lines))
                self.lines.append(line)
                return not any(word in line for word in ("backward", "grad("))
            self._run = run(self.lines, torch, saving_copies)
        return True

    def _line(self, kind: Kind) -> str | None:
        """A line of a kind, or None where there is no tensor for it."""
        need = self.random.choices(list(kind.lines), [len(lines) ** 0.5 for lines in kind.lines.values()])[0]
        template = self.random.choice(kind.lines[need])
        tensors = self._run.tensors
        names = [name for name, x in tensors.items() if NEEDS[need](x) and (kind is not WRITES or _takes(x, template))]
        if not names and kind is not CREATION:
            return None
        name = self.random.choice(names or [""])
        if "requires_grad_()" in template and self._has_aliases(name):  # views that were made before: see Weft's design
            return None
        line = template.format_map(Holes(self.random, tensors, name, self.dtypes))
        frozen = kind is WRITES and NEEDS["leaf"](tensors[name]) and self.random.random() < 0.8
        around = "with torch.no_grad(): " if frozen else self.random.choice(AROUND)
        return f"{around}{self._target(kind)} = {line}" if kind.names else f"{around}{line}"

    def _has_second_derivative(self, line: str) -> bool:
        grad = self._run.tensors.get(line.partition(" = ")[0].rpartition(": ")[2])
        return grad is None or grad.requires_grad

    def _is_tolerated(self, line: str, error: str) -> bool:
        """Whether Weft does what PyTorch refuses, among that a view as a leaf: one whose base has come to the tape."""
        target = re.search(r"t\d+", line.rpartition(": ")[2])
        x = self._run.tensors.get(target[0]) if target else None
        is_view = x is not None and x._base is not None
        return bool(TOLERATED.search(error)) or (is_view and error.startswith("a leaf Variable"))

    def _has_aliases(self, name: str) -> bool:
        addresses = [x.untyped_storage().data_ptr() for x in self._run.tensors.values()]
        return addresses.count(self._run.tensors[name].untyped_storage().data_ptr()) > 1

    def _target(self, kind: Kind) -> str:
        """A new name, or one that is in use, whose tensor goes."""
        names = [name for name in self._run.variables if name.startswith(kind.names)]
        if kind.names == "t" and (len(names) >= LIVE or (len(names) > 2 and self.random.random() < 0.2)):
            return self.random.choice(names)
        numbers = [int(name[1:]) for name in names]
        return f"{kind.names}{max(numbers, default=-1) + 1}"

    def _agreed(self, line: str, held: set[int]) -> str:
        """The line, with its result as Weft has it: new tensors are contiguous, and views made without gradients
        require none, whatever their base does.
        """
        head, _, expression = line.partition(" = ")
        x = self._run.tensors.get(head.rpartition(": ")[2])
        if x is None or not expression:
            return line
        if x.untyped_storage().data_ptr() not in held and not _is_dense(x):
            line = f"{head} = ({expression}).contiguous()"
        elif _only_claims_a_gradient(x):
            line = f"{line}.detach()"
        else:
            return line
        self._run = run(self.lines, torch, saving_copies)
        self._run.step(line)
        return line

    def _is_sound(self) -> bool:
        """Whether all tensors can be read, are small, in both senses, hold numbers, and are as Weft would have them."""
        tensors = list(self._run.tensors.values())
        try:
            grads = [x.grad for x in tensors if x.is_leaf and x.grad is not None]
        except RuntimeError:  # a view without a gradient whose base was written with one
            return False
        return not any(map(_is_odd, tensors)) and all(map(_is_small, [*tensors, *grads]))


def _takes(x: torch.Tensor, template: str) -> bool:
    """Whether a tensor shows what a line has written; PyTorch refuses expanded ones mostly, and others seldom."""
    return is_apart(x) or (0 in x.stride() and "mask" not in template)


def _is_small(x: torch.Tensor) -> bool:
    if x.numel() > ELEMENTS:
        return False
    return NEEDS["discrete"](x) or bool((x.detach().abs() < LARGEST).all())


def _is_odd(x: torch.Tensor) -> bool:
    """Whether a tensor is of PyTorch's own kind: strides of dims of size one that no view explains, for example."""
    strides = torch.empty(x.shape).stride()
    if any(size < 2 and step == 0 for size, step in zip(x.shape, x.stride(), strict=True)):
        return True
    return _only_claims_a_gradient(x) or (x._base is None and _is_dense(x) and x.stride() != strides)


def _is_dense(x: torch.Tensor) -> bool:
    return x.is_contiguous() and x.untyped_storage().nbytes() == x.numel() * x.element_size()


def _only_claims_a_gradient(x: torch.Tensor) -> bool:
    """Whether a view says that it requires a gradient because its base does; none would come."""
    return x._base is not None and x._base.requires_grad and x.requires_grad and x.is_leaf


def written(seed: int) -> tuple[str, ...]:
    """The program of a number."""
    with warnings.catch_warnings(), saving_copies():
        warnings.simplefilter("ignore")
        return Writer(seed).write()
