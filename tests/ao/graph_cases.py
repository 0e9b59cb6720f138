"""Small models of which graph mode makes something particular: each takes `torch`, or Weft in its place.

A case shows where observers are, the keys and grids of the converted model's state dict, and its results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.ao.graph_programs import _code, _libraries
from tests.ao.programs import Filler, Shown

_OF_WEIGHTS = ("_packed_weight_", "_quantized_")
"""Keys of quantized weights of functions, which are PyTorch's own objects there."""

_OF_GRIDS, _NUMBERED = (".scale", ".zero_point"), re.compile(r"(scale|zero_point)_\d+$")
"""Keys of grids: of layers, and of what is not computed by layers."""


@dataclass
class Case:
    """A float model, what is to be quantized, and inputs to observe."""

    model: Any
    mapping: Any
    inputs: tuple[Any, ...]
    is_qat: bool = False

    def converted(self, torch: Any, shown: Shown | None = None) -> Any:
        """The model in its quantized form."""
        _, fx = _libraries(torch)
        prepare = fx.prepare_qat_fx if self.is_qat else fx.prepare_fx
        prepared = prepare(self.model.train(self.is_qat), self.mapping, self.inputs)
        if shown is not None:
            _code(shown, prepared)
        prepared(*self.inputs)
        return fx.convert_fx(prepared.eval())


def _shown(torch: Any, case_of: Callable[[Any, Filler], Case]) -> Shown:
    shown, filler = Shown(), Filler(torch)
    case = case_of(torch, filler)
    filler.fill(case.model)
    quantized = case.converted(torch, shown)
    state = quantized.state_dict()
    for key in sorted(state):
        grid = f": {float(state[key]):.5f}" if key.endswith(_OF_GRIDS) or _NUMBERED.search(key) else ""
        if not any(part in key for part in _OF_WEIGHTS):
            shown.texts.append(f"{key}{grid}")
    results = quantized(*case.inputs)
    for at, result in enumerate(results if isinstance(results, tuple) else (results,)):
        shown.array(f"result {at}", result, 0.05)
    return shown


def _x86(torch: Any) -> Any:
    return _libraries(torch)[0].get_default_qconfig_mapping("x86")


# --- names of buffers ---------------------------------------------------------------------------------------------


def numbered(torch: Any, filler: Filler) -> Case:
    """Sums, joins and indices: each grid has a number, also where nothing in the converted model reads it."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.norm, self.factor = nn.LayerNorm(4), nn.Parameter(torch.zeros(4))

        def forward(self, x: Any) -> Any:
            y = (self.a(x) + self.b(x)) * x
            y = torch.cat([y, x], 1)[:, :4] + 1
            y = (y.reshape(-1, 4) * 0.5 + x) * self.factor
            y = torch.flatten(self.norm(y), 1)
            return self.c(y), torch.softmax(y, -1) + x

    return Case(Net(), _x86(torch), (filler.array(6, 4),))


def after_floats(torch: Any, filler: Filler) -> Case:
    """Layers after one that was left on floats: their grids are named after them."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2), nn.LayerNorm(2))
    return Case(model, _x86(torch).set_module_name("0", None), (filler.array(6, 4),))


def only_products(torch: Any, filler: Filler) -> Case:
    """Only affine layers and functions are quantized; what is between them is in modules of its own."""
    nn = torch.nn
    tq, _ = _libraries(torch)
    qconfig = tq.get_default_qconfig("x86")

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.a, self.weight = nn.LayerNorm(4), nn.Linear(4, 4), nn.Parameter(torch.zeros(4, 4))

        def forward(self, x: Any) -> Any:
            x = self.a(self.n(x)) * 2
            return nn.functional.linear(x, self.weight) + torch.sin(x)

    mapping = tq.QConfigMapping().set_object_type(nn.Linear, qconfig).set_object_type(nn.functional.linear, qconfig)
    return Case(nn.Sequential(Part(), Part()), mapping, (filler.array(6, 4),))


# --- observers that are shared ------------------------------------------------------------------------------------


def parts(torch: Any, filler: Filler) -> Case:
    """Parts, and what is made of them, share the observer of the whole; so do sums with numbers, and ReLUs of these."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.norm = nn.Linear(4, 8), nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(8)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            u, v = y.chunk(2, -1)
            u, v = self.b(u.reshape(-1, 4)), nn.functional.relu(v.reshape(-1, 4) * 2)
            w = torch.softmax(self.norm(y), -1).split(4, -1)[1].reshape(-1, 4)
            return torch.cat([u[:3], v[3:]], 0), self.c(w), torch.relu(u + v)

    return Case(Net(), _x86(torch), (filler.array(6, 4),))


# --- fusion -------------------------------------------------------------------------------------------------------


def _transposed(torch: Any) -> Any:
    """Equal numbers of channels: for others, PyTorch's quantized transposed convolution is not that of the floats."""
    nn = torch.nn
    up = (nn.ConvTranspose2d(6, 6, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.ConvTranspose2d(6, 6, 2), nn.BatchNorm2d(6))
    return nn.Sequential(*up, nn.Conv2d(6, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.ReLU())


def transposed(torch: Any, filler: Filler) -> Case:
    """Normalisation after a transposed convolution goes with its ReLU, and with the convolution where there is none."""
    return Case(_transposed(torch), _x86(torch), (filler.array(2, 6, 4, 4),))


def transposed_training(torch: Any, filler: Filler) -> Case:
    """In training it can only go with the ReLU."""
    nn = torch.nn
    model = nn.Sequential(*_transposed(torch)[:3], nn.Conv2d(6, 2, 1), nn.BatchNorm2d(2))
    mapping = _libraries(torch)[0].get_default_qat_qconfig_mapping("x86")
    return Case(model, mapping, (filler.array(2, 6, 4, 4),), is_qat=True)


def folded(torch: Any, filler: Filler) -> Case:
    """A ReLU after normalisation that was folded into an affine layer is computed with it, and observed alone."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())
    return Case(model, _x86(torch), (filler.array(6, 4),))


# --- types that are not computed with -----------------------------------------------------------------------------


def _types(torch: Any, filler: Filler, activation: Any, weight: Any) -> Case:
    """Layers and functions with a QConfig of these types, after a layer with the default one."""
    nn = torch.nn
    tq, _ = _libraries(torch)
    observer = tq.MinMaxObserver
    qconfig = tq.QConfig(activation=observer.with_args(dtype=activation), weight=observer.with_args(dtype=weight))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)
            self.weight = nn.Parameter(torch.zeros(4, 4))

        def forward(self, x: Any) -> Any:
            y = self.norm(self.b(self.a(x)))
            y = nn.functional.relu(nn.functional.linear(y, self.weight)) + x
            return torch.flatten(y, 1)

    mapping = tq.QConfigMapping().set_global(qconfig).set_module_name("a", tq.get_default_qconfig("x86"))
    return Case(Net(), mapping, (filler.array(6, 4),))


def signed_activations(torch: Any, filler: Filler) -> Case:
    """Activations of qint8 leave everything on floats."""
    return _types(torch, filler, torch.qint8, torch.qint8)


def unsigned_weights(torch: Any, filler: Filler) -> Case:
    """Weights of quint8 leave layers on floats between grids, and functions on floats."""
    return _types(torch, filler, torch.quint8, torch.quint8)


def unsigned_weights_training(torch: Any, filler: Filler) -> Case:
    """Likewise after training."""
    tq, _ = _libraries(torch)
    rounding = tq.FakeQuantize.with_args(observer=tq.MovingAverageMinMaxObserver)
    mapping = tq.QConfigMapping().set_global(tq.QConfig(activation=rounding, weight=rounding))
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.BatchNorm2d(3), torch.nn.ReLU())
    return Case(model, mapping, (filler.array(2, 2, 4, 4),), is_qat=True)


CASES: dict[str, Callable[[Any, Filler], Case]] = {
    "numbered": numbered,
    "after floats": after_floats,
    "only products": only_products,
    "parts": parts,
    "transposed": transposed,
    "transposed training": transposed_training,
    "folded": folded,
    "signed activations": signed_activations,
    "unsigned weights": unsigned_weights,
    "unsigned weights training": unsigned_weights_training,
}

GRAPH_CASES: dict[str, Callable[[Any], Shown]] = {
    f"case: {name}": partial(_shown, case_of=case_of) for name, case_of in CASES.items()
}
