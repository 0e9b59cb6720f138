"""What the holes of a line are filled with: draws that fit the tensors that a program has so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import torch

from tests.oracle.random_programs.lines import DTYPES

SHAPES = ((2, 3), (3,), (), (4,), (3, 2), (2, 2), (1, 3), (2, 1, 2))
NUMBERS = (2, 0.5, -1, 3, 1.5, 0, 1, -2, True, 0.25)
ODD_NUMBERS = (1j, 300, 2.5e9, -0.1, 1 / 3)


def is_apart(x: torch.Tensor) -> bool:
    """Whether no element is seen in two places: what several writes leave there is nobody's promise."""
    places = sum(((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)), 1)
    return not x.numel() or x.numel() == torch.arange(places).as_strided(x.shape, x.stride()).unique().numel()


NEEDS: dict[str, Callable[[torch.Tensor], bool]] = {
    "nothing": lambda x: True,
    "any": lambda x: True,
    "wide": lambda x: x.dim() > 0,
    "rows": lambda x: x.dim() > 0 and len(x) > 1,
    "apart_rows": lambda x: x.dim() > 0 and len(x) > 1 and is_apart(x),
    "row_major": lambda x: x.dim() > 0 and x.is_contiguous(),
    "matrix": lambda x: x.dim() == 2,
    "single": lambda x: x.numel() == 1,
    "complex": lambda x: x.is_complex(),
    "pairs": lambda x: x.dtype in (torch.float32, torch.float64) and x.dim() > 0 and x.shape[-1] == 2,
    "real": lambda x: not x.is_complex(),
    "ordered": lambda x: not x.is_complex() and x.numel() > 0,
    "ordered_rows": lambda x: not x.is_complex() and x.numel() > 0 and x.dim() > 0,
    "floating": lambda x: x.is_floating_point(),
    "differentiable": lambda x: x.is_floating_point() or x.is_complex(),
    "discrete": lambda x: not x.is_floating_point() and not x.is_complex(),
    "tracked": lambda x: x.requires_grad,
    "outside": lambda x: x.is_leaf or not x.requires_grad,
    "base": lambda x: x.requires_grad and x._base is None,  # hooks of some views crash PyTorch
    "leaf": lambda x: x.requires_grad and x.is_leaf,
    "with_grad": lambda x: x.is_leaf and x.grad is not None and x.grad.is_contiguous(),
}
"""What lines may ask of their tensor."""


class Holes:
    """Draws for one line. `dtypes` and `sizes` are those of its program, `tensors` what there is by name."""

    def __init__(self, random: Random, tensors: dict[str, torch.Tensor], name: str, dtypes: Sequence[str]) -> None:
        self._random = random
        self._tensors = tensors
        self._dtypes = dtypes
        self._name = name

    def __getitem__(self, hole: str) -> str:
        return str(getattr(self, hole)())

    @property
    def _x(self) -> torch.Tensor:
        return self._tensors[self._name]

    def _one(self, options: Sequence[Any]) -> Any:
        return self._random.choice(options)

    def x(self) -> str:
        return self._name

    def z(self) -> str:
        """Any tensor."""
        return self._one(sorted(self._tensors))

    def leaf(self) -> str:
        leaves = [name for name, x in self._tensors.items() if NEEDS["leaf"](x)]
        return self._one(leaves or [self._name])

    def y(self) -> str:
        """What can be broadcast to `{x}` and written into it, mostly a tensor."""
        return self.tensor() if self._random.random() < 0.8 else self.number()

    def tensor(self) -> str:
        """A tensor that can be broadcast to `{x}` and written into it."""
        return self._one([name for name, y in self._tensors.items() if _fits(y, self._x)] or [self._name])

    def like(self) -> str:
        """A tensor of the shape and type of `{x}`."""
        alike = [n for n, y in self._tensors.items() if y.shape == self._x.shape and y.dtype == self._x.dtype]
        return self._one(alike)

    def number(self) -> str:
        return repr(self._one(NUMBERS if self._random.random() < 0.95 else ODD_NUMBERS))

    def positive(self) -> str:
        return self._one(("2", "4", "0.5"))

    def mask(self) -> str:
        masks = [n for n, m in self._tensors.items() if m.dtype == torch.bool and m.shape == self._x.shape]
        if masks and self._random.random() < 0.7:
            return self._one(masks)
        return f"({self._name} != 0)" if self._x.is_complex() else f"({self._name} > 0)"

    def scalar(self) -> str:
        """A real number that depends on `{x}`."""
        if self._x.is_complex():
            return f"({self._name} * {self._name}).real.sum()"
        if self._x.dim() == 0 and self._random.random() < 0.5:
            return self._name
        return self._one((f"{self._name}.sum()", f"({self._name} * {self._name}).sum()", f"{self._name}.sum()"))

    def dim(self) -> int:
        if self._random.random() < 0.02:
            return self._x.dim()  # out of range
        return self._random.randrange(-self._x.dim(), self._x.dim())

    def new_dim(self) -> int:
        return self._random.randrange(-self._x.dim() - 1, self._x.dim() + 1)

    def order(self) -> str:
        order = list(range(self._x.dim()))
        self._random.shuffle(order)
        return ", ".join(map(str, order))

    def offset(self) -> int:
        return self._one((-1, 1))

    def last(self) -> int:
        return max(1, self._x.shape[-1] - 1)

    def shape(self) -> str:
        """Sizes that hold the elements of `{x}`; rarely, some that do not."""
        count = self._x.numel()
        if self._random.random() < 0.02:
            return f"{count + 1}"
        halves = [f"{n}, {count // n}" for n in (1, 2, 3) if count % n == 0]
        return self._one(["-1", f"{count}", "1, -1", *halves, *(["-1, 1"] if count else [])])

    def wider(self) -> str:
        """Sizes that `{x}` can be expanded to."""
        sizes = [self._one((1, 3)) if size == 1 else self._one((size, -1)) for size in self._x.shape]
        return ", ".join(map(str, [*([2] if not sizes or self._random.random() < 0.5 else []), *sizes])) + ","

    def strided(self) -> str:
        """Sizes, strides and offset of places in the storage of `{x}`."""
        shape = self._one(((2,), (2, 2), (3,), (1, 2)))
        return f"{shape}, {tuple(self._one((1, 2, 0, 3, 1)) for _ in shape)}, {self._one((0, 0, 1))}"

    def index(self) -> str:
        """A basic index."""
        parts: list[str] = []
        for size in self._x.shape[: self._random.randint(0, self._x.dim())]:
            parts.append(self._one((":", "1:", ":-1", "::2", "0", "-1", ":1")) if size > 1 else self._one((":", "0")))
        if self._random.random() < 0.2:
            parts.insert(self._random.randint(0, len(parts)), "None")
        if self._random.random() < 0.2 or not parts:
            parts.insert(self._random.randint(0, len(parts)), "...")
        return ", ".join(parts)

    def ids(self) -> str:
        return self._one(("torch.tensor([1, 0])", "torch.tensor([0, -1])", "torch.tensor([0])", "[0, 1]", "[1, 1]"))

    def _typed(self, names: Sequence[str], otherwise: str) -> str:
        return f"torch.{self._one(names or [otherwise])}"

    def dtype(self) -> str:
        return self._typed(self._dtypes, "float32")

    def float_dtype(self) -> str:
        return self._typed([d for d in self._dtypes if "float" in d], "float32")

    def real_dtype(self) -> str:
        return self._typed([d for d in self._dtypes if "complex" not in d and d != "bool"], "float32")

    def cast(self) -> str:
        """A type that the elements of `{x}` can be converted to with a defined result."""
        names = self._dtypes if self._random.random() < 0.7 else DTYPES
        return self._typed([d for d in names if _converts(self._x, getattr(torch, d))], "float64")

    def size(self) -> str:
        return repr(self._one(SHAPES))

    def count(self) -> int:
        return self._one((3, 4, 6))

    def values(self) -> str:
        shape = self._one(SHAPES)
        numbers = [self._random.randint(0, 12) / 4 for _ in range(torch.Size(shape).numel())]
        return repr(torch.tensor(numbers).reshape(shape).tolist())


def _fits(y: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether `y` can be broadcast to `x`, and its elements mean something in the type of `x`."""
    try:
        wide = torch.broadcast_shapes(x.shape, y.shape) == x.shape
    except RuntimeError:
        return False
    return wide and _converts(y, x.dtype)


def _converts(x: torch.Tensor, dtype: torch.dtype) -> bool:
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool or NEEDS["discrete"](x):
        return True
    whole = x.detach().real if x.is_complex() else x.detach()
    return bool(((whole >= 0) & (whole <= 100)).all())
