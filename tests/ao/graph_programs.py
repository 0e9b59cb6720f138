"""PyTorch's tutorials of graph-mode quantization in small: each takes `torch`, or Weft in its place."""

from __future__ import annotations

import copy
import importlib
import re
from typing import Any

from tests.ao.programs import Filler, Shown


def _libraries(torch: Any) -> tuple[Any, Any]:
    name = torch.__name__
    return importlib.import_module(f"{name}.ao.quantization"), importlib.import_module(
        f"{name}.ao.quantization.quantize_fx"
    )


def _code(shown: Shown, model: Any) -> None:
    """The code of a prepared or fused model, without differences that are none."""
    text = model.code.replace("torch._C._nn.", "torch.nn.functional.").replace(
        "torch.conv2d", "torch.nn.functional.conv2d"
    )
    text = re.sub(r"torch\.cat\((.*), dim = (\d)\)", r"torch.cat(\1, \2)", text)
    shown.texts += text.strip().split("\n")[1:]  # annotations in texts have other quotes


def _layers(shown: Shown, model: Any) -> None:
    """The paths and classes of a model's layers. PyTorch has no ReLU where one is computed with a sum."""
    shown.texts += sorted(
        f"{name}: {type(module).__name__}"
        for name, module in model.named_modules()
        if not name.startswith("activation_post_process") and type(module).__name__ not in ("ReLU", "ReLUWithName")
    )


def _residual(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.down = None
            if inputs != outputs:
                self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y += x if self.down is None else self.down(x)
            return self.relu(y)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
            self.layer1 = nn.Sequential(Block(4, 4), Block(4, 6))
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(6, 5)

        def forward(self, x: Any) -> Any:
            return self.fc(torch.flatten(self.avgpool(self.layer1(self.stem(x))), 1))

    return Net()


def static(torch: Any, mapping_of: Any) -> Shown:
    """The tutorial of static quantization on a small residual network."""
    tq, fx = _libraries(torch)
    shown, filler = Shown(), Filler(torch)
    model = filler.fill(_residual(torch)).eval()
    x = filler.array(2, 3, 10, 10)
    prepared = fx.prepare_fx(model, mapping_of(torch, tq), (x,))
    _code(shown, prepared)
    _layers(shown, prepared)
    prepared(x)
    prepared(x * 0.5)
    quantized = fx.convert_fx(prepared)
    _layers(shown, quantized)
    step = quantized.fc.scale if hasattr(quantized.fc, "scale") else 1e-4
    shown.array("result", quantized(x), step)
    return shown


def _by_place(torch: Any, tq: Any) -> Any:
    """A mapping that uses all ways to say where."""
    qconfig = tq.get_default_qconfig("x86")
    return (
        tq.QConfigMapping()
        .set_global(qconfig)
        .set_object_type(torch.nn.Linear, tq.default_qconfig)
        .set_module_name_regex(r"layer1\.\d\.conv1", None)
        .set_module_name("layer1.1", None)
        .set_module_name("layer1.1.conv2", qconfig)
        .set_module_name_object_type_order("layer1.0", torch.nn.Conv2d, 1, None)
    )


def _as_dict(torch: Any, tq: Any) -> Any:
    return {"": tq.default_qconfig, "object_type": [(torch.nn.Linear, None)], "module_name": [("stem", None)]}


def fused(torch: Any) -> Shown:
    """Fusion alone."""
    _, fx = _libraries(torch)
    shown, filler = Shown(), Filler(torch)
    model = filler.fill(_residual(torch)).eval()
    x = filler.array(2, 3, 10, 10)
    result = fx.fuse_fx(model)
    _code(shown, result)
    _layers(shown, result)
    shown.array("result", result(x), 1e-5)
    return shown


def training(torch: Any) -> Shown:
    """Quantization-aware training of the network."""
    tq, fx = _libraries(torch)
    shown, filler = Shown(), Filler(torch)
    model = filler.fill(_residual(torch)).train()
    x = filler.array(4, 3, 10, 10)
    prepared = fx.prepare_qat_fx(model, tq.get_default_qat_qconfig_mapping("x86"), (x,))
    _code(shown, prepared)
    _layers(shown, prepared)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = prepared(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    shown.array("losses", torch.stack(losses), 1e-3)
    quantized = fx.convert_fx(prepared.eval())
    _layers(shown, quantized)
    shown.array("result", quantized(x), quantized.fc.scale)
    return shown


def functions(torch: Any, mapping_of: Any) -> Shown:
    """Functions and methods of all kinds, with weights and without, and numbers among the arguments."""
    tq, fx = _libraries(torch)
    nn, shown, filler = torch.nn, Shown(), Filler(torch)
    F = nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.zeros(6, 6)), nn.Parameter(torch.zeros(6))
            self.kernel, self.shift = nn.Parameter(torch.zeros(6, 6, 3, 3)), nn.Parameter(torch.zeros(6))
            self.join = torch.ao.nn.quantized.FloatFunctional()
            self.linear, self.norm, self.up = nn.Linear(6, 6), nn.BatchNorm2d(6), nn.ConvTranspose2d(6, 6, 2)
            self.first = nn.Sequential(nn.ELU(), nn.InstanceNorm2d(6), nn.PReLU(), nn.LeakyReLU(), nn.Tanh())
            self.sigmoid, self.tanh, self.relu6, self.same = (
                nn.Hardsigmoid(),
                nn.Hardtanh(-2, 2),
                nn.ReLU6(),
                nn.Identity(),
            )
            self.softmax = nn.Softmax(-1)

        def forward(self, x: Any) -> Any:
            y = self.join.add_relu(F.relu(F.linear(x, self.weight, self.bias)), x)
            y = self.join.cat([self.join.add_scalar(self.join.mul(y, x), 2.0), x], 0)
            y = 2 * torch.relu(self.linear(y) * y) + self.shift
            count = y.shape[0] * 2
            y = self.norm(y.view(-1, 6, 1, 1).repeat(1, 1, 4, 4))
            y = F.conv2d(self.up(y), self.kernel, None, (1, 1), (1, 1), (1, 1), 1)
            y = F.hardswish(self.first(y))
            y = self.sigmoid(y) * self.relu6(self.tanh(y))
            y = F.leaky_relu(F.interpolate(y, size=3), 0.1)
            y = self.same(F.layer_norm(y, [3]).permute(0, 2, 3, 1))
            y = torch.clamp(F.avg_pool2d(y, 1).mean([2]), -1, 1).sigmoid()
            y = F.elu(y).unsqueeze(1).squeeze(1).transpose(1, 2)
            y = F.dropout(torch.stack([y, y]), 0.5, False)
            return self.softmax(y), y, torch.matmul(y, y.transpose(-1, -2)), (x - 1) / count

    model = filler.fill(Net()).eval()
    x = filler.array(5, 6)
    prepared = fx.prepare_fx(model, mapping_of(tq), (x,))
    _code(shown, prepared)
    prepared(x)
    quantized = fx.convert_fx(prepared)
    for at, result in enumerate(quantized(x)):
        shown.array(f"result {at}", result, 0.05)
    return shown


def language_model(torch: Any, mapping_of: Any) -> Shown:
    """An LSTM between a table and an affine layer."""
    tq, fx = _libraries(torch)
    nn, shown, filler = torch.nn, Shown(), Filler(torch)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.rnn, self.decoder = nn.Embedding(10, 6), nn.LSTM(6, 5, 2), nn.Linear(5, 10)

        def forward(self, words: Any, hidden: Any) -> Any:
            y, hidden = self.rnn(self.encoder(words), hidden)
            return self.decoder(y), hidden

    model = filler.fill(Model()).eval()
    words = torch.from_numpy(filler.random.randint(0, 10, (7, 3)))
    hidden = (torch.zeros(2, 3, 5), torch.zeros(2, 3, 5))
    prepared = fx.prepare_fx(model, mapping_of(torch, tq), (words, hidden))
    _code(shown, prepared)
    prepared(words, hidden)
    quantized = fx.convert_fx(prepared)
    _layers(shown, quantized)
    y, (h, c) = quantized(words, hidden)
    for name, x in (("scores", y), ("h", h), ("c", c)):
        shown.array(name, x, 0.01)
    return shown


def numeric_suite(torch: Any) -> Shown:
    """The tutorial of the numeric suite for graphs: weights, activations of both models, and shadows."""
    tq, fx = _libraries(torch)
    ns = importlib.import_module(f"{torch.__name__}.ao.ns._numeric_suite_fx")
    measures = importlib.import_module(f"{torch.__name__}.ao.ns.fx.utils")
    nn, shown, filler = torch.nn, Shown(), Filler(torch)
    F = nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
            self.conv2, self.fc = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 3)
            self.weight, self.bias = nn.Parameter(torch.zeros(3, 3)), nn.Parameter(torch.zeros(3))

        def forward(self, x: Any) -> Any:
            x = self.conv2(self.relu(self.norm(self.conv1(x))))
            x = F.relu(self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1)))
            x = F.linear(x, self.weight, self.bias)
            return torch.cat([x, x], 1)

    model = filler.fill(Net()).eval()
    x = filler.array(2, 3, 8, 8)

    def both() -> Any:  # PyTorch's suite changes what it is given
        prepared = fx.prepare_fx(copy.deepcopy(model), tq.get_default_qconfig_mapping("x86"), (x,))
        prepared(x)
        return prepared, fx.convert_fx(copy.deepcopy(prepared))

    def show(name: str, results: Any) -> None:
        for layer in sorted(results):
            for kind, models in results[layer].items():
                for side, records in models.items():
                    shown.texts.append(f"{name} {layer} {kind} {side} {len(records)}: {sorted(records[0])}")
                    value = records[0]["values"][0]
                    one_grid = value.is_quantized and "channel" not in str(value.qscheme())
                    shown.array(f"{name} {layer} {kind} {side}", value, value.q_scale() if one_grid else 1e-4)

    show("weights", ns.extract_weights("a", *both()[:1], "b", both()[1]))
    a, b = ns.add_loggers("a", copy.deepcopy(model), "b", both()[1], ns.OutputLogger)
    a(x)
    b(x)
    results = ns.extract_logger_info(a, b, ns.OutputLogger, "b")
    ns.extend_logger_results_with_comparison(results, "a", "b", measures.compute_sqnr, "sqnr")
    show("loggers", results)
    prepared, quantized = both()
    shadows = ns.add_shadow_loggers("a", prepared, "b", quantized, ns.OutputLogger)
    shadows(x)
    show("shadows", ns.extract_shadow_logger_info(shadows, ns.OutputLogger, "b"))
    return shown


GRAPH_PROGRAMS = {
    "graph: static x86": lambda torch: static(torch, lambda _, tq: tq.get_default_qconfig_mapping("x86")),
    "graph: static qnnpack": lambda torch: static(torch, lambda _, tq: tq.get_default_qconfig_mapping("qnnpack")),
    "graph: by place": lambda torch: static(torch, _by_place),
    "graph: dict": lambda torch: static(torch, _as_dict),
    "graph: fused": fused,
    "graph: training": training,
    "graph: functions": lambda torch: functions(torch, lambda tq: tq.get_default_qconfig_mapping("x86")),
    "graph: dynamic functions": lambda torch: functions(
        torch, lambda tq: tq.QConfigMapping().set_global(tq.default_dynamic_qconfig)
    ),
    "graph: dynamic qint8": lambda torch: language_model(
        torch, lambda _, tq: tq.QConfigMapping().set_global(tq.default_dynamic_qconfig)
    ),
    "graph: dynamic float16": lambda torch: language_model(
        torch, lambda _, tq: tq.QConfigMapping().set_global(tq.float16_dynamic_qconfig)
    ),
    "graph: table": lambda torch: language_model(
        torch,
        lambda torch, tq: (
            tq.QConfigMapping()
            .set_object_type(torch.nn.Embedding, tq.float_qparams_weight_only_qconfig)
            .set_object_type(torch.nn.Linear, tq.default_qconfig)
        ),
    ),
    "graph: numeric suite": numeric_suite,
}
