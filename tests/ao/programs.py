"""PyTorch's tutorials of quantization in small. Each takes `torch`, or Weft in its place, and returns what it shows.

`Shown.texts` must be equal, numbers in them to five digits; `Shown.numbers` may differ by `Shown.steps`, one step of
the grid on which the results are.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Shown:
    """What a program has shown: texts, and by name, numbers with the size of a step."""

    texts: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)

    def array(self, name: str, tensor: Any, step: float) -> None:
        plain = tensor.dequantize() if tensor.is_quantized else tensor
        self.numbers[name] = plain.detach().numpy().astype(float).round(6).tolist()
        self.steps[name] = float(step)

    def entries(self, state: Any) -> None:
        """Keys, types and sizes of a state dict."""
        for key, value in state.items():
            parts = value if isinstance(value, tuple) else (value,)
            kinds = [f"{x.dtype} {tuple(x.shape)}" if hasattr(x, "shape") else str(x) for x in parts]
            self.texts.append(f"{key}: {', '.join(kinds)}")


class Filler:
    """Fills models with the same numbers under both libraries."""

    def __init__(self, torch: Any, seed: int = 0) -> None:
        self.torch = torch
        self.random = np.random.RandomState(seed)

    def array(self, *size: int) -> Any:
        return self.torch.from_numpy(self.random.randn(*size).astype(np.float32))

    def fill(self, model: Any) -> Any:
        state = model.state_dict()
        for key, value in state.items():
            if value.is_floating_point():
                numbers = self.array(*value.shape) * 0.3 if value.ndim else value
                state[key] = numbers.abs() + 0.5 if "var" in key else numbers
        model.load_state_dict(state)
        return model


def _cnn(torch: Any) -> Any:
    nn, tq = torch.nn, torch.ao.quantization

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = tq.QuantStub()
            self.conv = nn.Conv2d(1, 4, 3)
            self.bn = nn.BatchNorm2d(4)
            self.relu = nn.ReLU()
            self.conv2 = nn.Conv2d(4, 4, 3, padding=1, groups=2)
            self.skip = torch.ao.nn.quantized.FloatFunctional()
            self.relu6 = nn.ReLU6()
            self.pool = nn.MaxPool2d(2)
            self.fc = nn.Linear(4 * 9, 5)
            self.fc2 = nn.Linear(5, 5)
            self.relu2 = nn.ReLU()
            self.hardswish = nn.Hardswish()
            self.norm = nn.LayerNorm(5)
            self.dropout = nn.Dropout(0.0)
            self.dequant = tq.DeQuantStub()

        def forward(self, x: Any) -> Any:
            x = self.quant(x)
            x = self.relu(self.bn(self.conv(x)))
            x = self.relu6(self.skip.add(x, self.conv2(x)))
            x = torch.flatten(self.pool(x), 1)
            x = self.relu2(self.fc2(self.fc(x)))
            return self.dequant(self.dropout(self.norm(self.hardswish(x))))

    return Net()


_FUSED = [["conv", "bn", "relu"], ["fc2", "relu2"]]


def static(torch: Any, backend: str) -> Shown:
    """Calibration and conversion of a small network of convolutions."""
    tq, shown, filler = torch.ao.quantization, Shown(), Filler(torch)
    model = filler.fill(_cnn(torch)).eval()
    x = filler.array(3, 1, 8, 8)
    model.qconfig = tq.get_default_qconfig(backend)
    fused = tq.fuse_modules(model, _FUSED)
    prepared = tq.prepare(fused)
    shown.texts += [repr(fused), repr(prepared)]
    shown.entries(prepared.state_dict())
    prepared(x)
    prepared(x * 2)
    quantized = tq.convert(prepared)
    shown.texts.append(repr(quantized))
    shown.entries(quantized.state_dict())
    shown.array("weight", quantized.conv.weight(), 0)
    shown.array("result", quantized(x), quantized.norm.scale)
    return shown


def dynamic_language_model(torch: Any) -> Shown:
    """A language model of two LSTM layers with weights of 8 bits."""
    nn, shown, filler = torch.nn, Shown(), Filler(torch)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Embedding(10, 6)
            self.rnn = nn.LSTM(6, 5, 2)
            self.decoder = nn.Linear(5, 10)

        def forward(self, words: Any, hidden: Any) -> Any:
            y, hidden = self.rnn(self.encoder(words), hidden)
            return self.decoder(y), hidden

    model = filler.fill(Model()).eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.LSTM, nn.Linear}, dtype=torch.qint8)
    shown.texts += [repr(quantized), *quantized.state_dict()]
    words = torch.from_numpy(filler.random.randint(0, 10, (7, 3)))
    y, (h, c) = quantized(words, (torch.zeros(2, 3, 5), torch.zeros(2, 3, 5)))
    for name, x in (("scores", y), ("h", h), ("c", c)):
        shown.array(name, x, 0.002)
    return shown


def dynamic_layers(torch: Any, dtype: str) -> Shown:
    """Recurrent layers and cells of all kinds, padded and packed, and a stack of affine layers."""
    nn, shown, filler = torch.nn, Shown(), Filler(torch)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 5, bidirectional=True)
            self.gru = nn.GRU(10, 4, batch_first=True)
            self.lstm_cell, self.gru_cell, self.rnn_cell = nn.LSTMCell(4, 5), nn.GRUCell(4, 5), nn.RNNCell(4, 5)
            self.stack = nn.Sequential(nn.Linear(5, 12), nn.GELU(), nn.Linear(12, 5), nn.LayerNorm(5), nn.Tanh())

        def forward(self, x: Any, lengths: Any) -> Any:
            if lengths is not None:
                x = nn.utils.rnn.pack_padded_sequence(x, lengths)
            y, _ = self.lstm(x)
            if lengths is not None:
                y, _ = nn.utils.rnn.pad_packed_sequence(y)
            z, _ = self.gru(y)
            a, b = self.lstm_cell(z[0])
            return y, z, a, b, self.gru_cell(z[0]), self.rnn_cell(z[0]), self.stack(a)

    model = filler.fill(Model()).eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, dtype=getattr(torch, dtype))
    shown.texts += [repr(quantized), *quantized.state_dict()]
    x = filler.array(7, 3, 6)
    for kind, lengths in (("padded", None), ("packed", [7, 4, 2])):
        for at, y in enumerate(quantized(x, lengths)):
            shown.array(f"{kind} {at}", y, 0.003)
    return shown


def tables(torch: Any) -> Shown:
    """Tables of vectors, by number and in bags."""
    nn, tq, shown, filler = torch.nn, torch.ao.quantization, Shown(), Filler(torch)
    model = nn.Sequential(nn.Embedding(10, 4), nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True))
    filler.fill(model)
    model.qconfig = tq.float_qparams_weight_only_qconfig
    quantized = tq.convert(tq.prepare(model))
    shown.texts.append(repr(quantized))
    shown.entries(quantized.state_dict())
    shown.array("vectors", quantized[0](torch.tensor([[1, 2], [3, 9]])), 1e-5)
    shown.array("bags", quantized[1](torch.tensor([1, 2, 3]), torch.tensor([0, 2, 3])), 1e-5)
    return shown


def training(torch: Any) -> Shown:
    """Quantization-aware training of the network, with a frozen grid and frozen statistics at the end."""
    tq, shown, filler = torch.ao.quantization, Shown(), Filler(torch)
    model = filler.fill(_cnn(torch)).train()
    x = filler.array(3, 1, 8, 8)
    model.qconfig = tq.get_default_qat_qconfig("x86")
    prepared = tq.prepare_qat(tq.fuse_modules_qat(model, _FUSED))
    shown.texts.append(repr(prepared))
    shown.entries(prepared.state_dict())
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        loss = prepared(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step == 1:
            prepared.apply(tq.disable_observer)
        if step == 2:
            prepared.apply(torch.ao.nn.intrinsic.qat.freeze_bn_stats)
    shown.array("losses", torch.stack(losses), 1e-3)
    quantized = tq.convert(prepared.eval())
    shown.array("result", quantized(x), quantized.norm.scale)
    return shown


def _blocks(torch: Any) -> Any:
    nn, tq = torch.nn, torch.ao.quantization

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU()
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.down = nn.Conv2d(inputs, outputs, 1)
            self.join = torch.ao.nn.quantized.FloatFunctional()

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            return self.join.add_relu(y, self.down(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = tq.QuantStub()
            self.layer1 = nn.Sequential(Block(3, 4), Block(4, 4))
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(4, 5)
            self.dequant = tq.DeQuantStub()

        def forward(self, x: Any) -> Any:
            x = self.pool(self.layer1(self.quant(x)))
            return self.dequant(self.fc(torch.flatten(x, 1)))

    return Net(), Block


def numeric_suite(torch: Any) -> Shown:
    """The three comparisons of the numeric suite, on a small residual network."""
    tq, nn, ns = torch.ao.quantization, torch.nn, torch.ao.ns._numeric_suite
    shown, filler = Shown(), Filler(torch)
    model, block = _blocks(torch)
    filler.fill(model).eval()
    x = filler.array(2, 3, 8, 8)
    model.qconfig = tq.get_default_qconfig("x86")
    for part in model.layer1:
        tq.fuse_modules(part, [["conv1", "bn1", "relu"], ["conv2", "bn2"]], inplace=True)
    prepared = tq.prepare(model)
    prepared(x)
    quantized = tq.convert(prepared)
    _pairs(shown, "weights", ns.compare_weights(model.state_dict(), quantized.state_dict()))
    for name, kinds in (
        ("blocks", {block, nn.Linear}),
        ("layers", {torch.ao.nn.quantized.FloatFunctional, nn.Conv2d, torch.ao.nn.intrinsic.ConvReLU2d}),
    ):
        pairs = ns.compare_model_stub(copy.deepcopy(model), copy.deepcopy(quantized), kinds, x)
        _pairs(shown, name, pairs)
    _pairs(shown, "outputs", ns.compare_model_outputs(copy.deepcopy(model), copy.deepcopy(quantized), x))
    return shown


def _pairs(shown: Shown, name: str, pairs: Any) -> None:
    for key, pair in pairs.items():
        for side, recorded in pair.items():
            tensors = recorded if isinstance(recorded, list) else [recorded]
            kinds = [f"{x.dtype} {tuple(x.shape)}" for x in tensors]
            shown.texts.append(f"{name} {key} {side} {type(recorded).__name__ == 'list'}: {kinds}")
            one_grid = tensors[0].is_quantized and "channel" not in str(tensors[0].qscheme())
            shown.array(f"{name} {key} {side}", tensors[0], tensors[0].q_scale() if one_grid else 1e-4)


PROGRAMS = {
    "static x86": lambda torch: static(torch, "x86"),
    "static qnnpack": lambda torch: static(torch, "qnnpack"),
    "dynamic language model": dynamic_language_model,
    "dynamic qint8": lambda torch: dynamic_layers(torch, "qint8"),
    "dynamic float16": lambda torch: dynamic_layers(torch, "float16"),
    "tables": tables,
    "training": training,
    "numeric suite": numeric_suite,
}
