"""PyTorch's optimizers and schedules beside ours, over the configurations that PyTorch itself tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import weft

SHAPES = {"float64": [(3, 2), (4,), (2, 2, 3)], "float32": [(2, 3), ()]}
MATRICES = {"float64": [(3, 2), (2, 4), (3, 3)], "float32": [(2, 3), (4, 1)]}
ROWS = {"float64": [(5, 2), (4, 2, 2), (3, 1)], "float32": [(4, 3), (5, 2)]}
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "complex128": 1e-9, "int64": 0}
BFLOAT16 = 2e-2  # Muon iterates in bfloat16, and the roundings of two frameworks differ
STEPS_ARE_TENSORS = {"SparseAdam"}  # theirs is an int, which a compiled step could not count

SCHEDULES = [
    "LambdaLR(o, lambda epoch: 0.95**epoch)",
    "LambdaLR(o, [lambda epoch: 0.9**epoch, lambda epoch: 1 / (epoch + 1)])",
    "MultiplicativeLR(o, lambda epoch: 0.97)",
    "StepLR(o, 7, 0.5)",
    "MultiStepLR(o, [3, 3, 20, 41], 0.3)",
    "ConstantLR(o, 0.25, 11)",
    "LinearLR(o, 0.1, 0.8, 20)",
    "ExponentialLR(o, 0.93)",
    "PolynomialLR(o, 30, 2.0)",
    "CosineAnnealingLR(o, 12, 0.003)",
    "CosineAnnealingWarmRestarts(o, 5, 2, 0.001)",
    "CosineAnnealingWarmRestarts(o, 6)",
    "CyclicLR(o, 0.01, 0.3, 4, 7)",
    "CyclicLR(o, [0.01, 0.02], [0.3, 0.4], 4, mode='triangular2', base_momentum=0.7)",
    "CyclicLR(o, 0.01, 0.3, 5, mode='exp_range', gamma=0.98, cycle_momentum=False)",
    "CyclicLR(o, 0.01, 0.3, 5, scale_fn=lambda x: 0.5**x, scale_mode='cycle')",
    "CyclicLR(o, 0.01, 0.3, 5, scale_fn=lambda x: 0.99**x, scale_mode='iterations')",
    "OneCycleLR(o, 0.5, total_steps=52)",
    "OneCycleLR(o, [0.5, 0.25], epochs=13, steps_per_epoch=4, anneal_strategy='linear', three_phase=True)",
    "OneCycleLR(o, 0.5, total_steps=60, pct_start=0.1, cycle_momentum=False, div_factor=5)",
    "swa.SWALR(o, 0.001, 9)",
    "swa.SWALR(o, [0.002, 0.5], 7, 'linear')",
    "swa.SWALR(o, 0.3, 0)",
    "SequentialLR(o, [s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9)], [8])",
    "SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 5), s.CosineAnnealingLR(o, 20), s.StepLR(o, 3, 0.5)], [5, 25])",
    "SequentialLR(o, [s.SequentialLR(o, [s.LinearLR(o, 0.2), s.StepLR(o, 4)], [6]), s.ExponentialLR(o, 0.9)], [15])",
    "ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9), s.MultiStepLR(o, [9, 30])])",
    "ChainedScheduler([s.SequentialLR(o, [s.LinearLR(o), s.PolynomialLR(o, 20)], [6]), s.StepLR(o, 10)])",
    "SequentialLR(o, [s.ChainedScheduler([s.StepLR(o, 2), s.ExponentialLR(o, 0.8)]), s.ExponentialLR(o, 0.9)], [10])",
    "ReduceLROnPlateau(o, patience=2, cooldown=1)",
    "ReduceLROnPlateau(o, 'max', 0.5, 1, 0.01, 'abs', min_lr=[0.01, 0.002])",
]


def infos() -> list[Any]:
    """What PyTorch says about each of its optimizers."""
    from torch.testing._internal.common_optimizers import optim_db

    return list(optim_db)


def theirs(value: Any) -> Any:
    """Our values as PyTorch's."""
    import torch

    return _mapped(value, weft.Tensor, lambda x: torch.from_numpy(np.array(x.detach().numpy())))


def ours(value: Any) -> Any:
    """PyTorch's values as ours."""
    import torch

    return _mapped(value, torch.Tensor, lambda x: weft.tensor(x.detach().numpy().copy()))


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(entry, kind, change) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(entry, kind, change) for entry in value)
    return value


def numbers(name: str, dtypes: dict[str, list[tuple[int, ...]]], seed: int) -> list[np.ndarray]:
    """One array per parameter of an optimizer; gradients of rows that are looked up have rows of zeros."""
    rng = np.random.default_rng(seed)
    found = []
    for dtype, shapes in dtypes.items():
        for shape in shapes:
            array = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.startswith("complex") else 0)
            if name == "SparseAdam" and seed:
                array[seed % shape[0]] = 0
            found.append(np.asarray(array).astype(dtype))
    return found


class Side:
    """One framework's parameters and optimizer."""

    def __init__(self, torch: Any, name: str, arrays: list[np.ndarray], options: dict[str, Any], grouped: bool) -> None:
        self.torch = torch
        self.name = name
        self.params = [torch.nn.Parameter(torch.tensor(array)) for array in arrays]
        groups: Any = self.params
        if grouped:
            groups = [{"params": self.params[:2]}, {"params": self.params[2:], "lr": 0.02}]
        self.optimizer = getattr(torch.optim, name)(groups, **options)

    def step(self, arrays: list[np.ndarray | None]) -> None:
        """Take the gradients (None: none), and step."""
        for param, array in zip(self.params, arrays, strict=True):
            param.grad = None if array is None else self.torch.tensor(array)
            if self.name == "SparseAdam" and array is not None:
                param.grad = param.grad.to_sparse(1)
        self.optimizer.step(*([self.closure] if self.name == "LBFGS" else []))

    def closure(self) -> Any:
        """The loss of a valley with a bend, in all parameters."""
        self.optimizer.zero_grad()
        losses = [((p.abs() ** 2 - 1) ** 2 + (p.abs() - 0.3) ** 2 * 0.1).sum() for p in self.params]
        loss = sum(x.double() for x in losses) * (1 + 0.1 * losses[0].double())
        loss.backward()
        return loss


def differences(name: str, left: Any, right: Any, where: str = "", loose: float = 1) -> Iterator[str]:
    """Where two trees of ours and theirs differ: keys in order, types, shapes, values."""
    if isinstance(left, weft.Tensor) or isinstance(right, np.ndarray):
        yield from _differences_of_arrays(left, right, where, loose)
    elif type(left) is not type(right):
        yield f"{where} is {type(left).__name__}, not {type(right).__name__}"
    elif isinstance(left, dict):
        if list(left) != list(right):
            yield f"{where} has keys {list(left)}, not {list(right)}"
        else:
            for key in left:
                yield from differences(name, left[key], right[key], f"{where}[{key!r}]", loose)
    elif isinstance(left, (list, tuple)):
        if len(left) != len(right):
            yield f"{where} has length {len(left)}, not {len(right)}"
        else:
            for at, (a, b) in enumerate(zip(left, right, strict=True)):
                yield from differences(name, a, b, f"{where}[{at}]", loose)
    elif isinstance(left, float):
        if not np.isclose(left, right, rtol=1e-8 * loose, atol=1e-10):
            yield f"{where} is {left}, not {right}"
    elif left != right and not callable(left):
        yield f"{where} is {left!r}, not {right!r}"


def _differences_of_arrays(left: Any, right: Any, where: str, loose: float) -> Iterator[str]:
    if not isinstance(left, weft.Tensor) or not isinstance(right, np.ndarray):
        yield f"{where} is {type(left).__name__}, not {type(right).__name__}"
        return
    array = left.detach().numpy()
    if (array.dtype, array.shape) != (right.dtype, right.shape):
        yield f"{where} is {array.dtype}{array.shape}, not {right.dtype}{right.shape}"
        return
    bound = TOLERANCE[str(right.dtype)] * loose
    if not np.allclose(array, right, rtol=bound, atol=bound, equal_nan=True):
        yield f"{where} is {array}, not {right}"


def copied(value: Any) -> Any:
    """A tree of the same tensors that may be changed."""
    return _mapped(value, weft.Tensor, lambda x: x)


def as_arrays(value: Any) -> Any:
    """PyTorch's values with arrays for tensors."""
    import torch

    return _mapped(value, torch.Tensor, lambda x: x.detach().numpy().copy())
