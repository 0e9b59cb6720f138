"""What graph mode quantizes: the modules, functions and methods, and what becomes of their results.

Anything that is not in these tables stays as it is, on floats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

import weft.ao.nn.intrinsic.modules.fused as nni
from weft import nn
from weft._base.dtype import DType, float16, float32, qint8, quint8
from weft._base.types import Arg
from weft.ao._observing.fake_quantize import FixedQParamsFakeQuantize
from weft.ao._observing.observer import FixedQParamsObserver
from weft.ao._observing.quant_type import QuantType
from weft.ao._observing.utils import AnyQConfig
from weft.ao.nn.qat.dynamic.modules.linear import Linear as DynamicQatLinear
from weft.ao.nn.qat.modules.embedding_ops import Embedding as QatEmbedding
from weft.ao.nn.qat.modules.embedding_ops import EmbeddingBag as QatEmbeddingBag
from weft.ao.nn.qat.modules.linear import Linear as QatLinear
from weft.ao.quantization.quantization_mappings import (
    DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
    DEFAULT_QAT_MODULE_MAPPINGS,
    DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
    get_embedding_qat_module_mappings,
)
from weft.fx._names import qualified_name
from weft.fx.node import Node
from weft.nn._module import Module
from weft.nn.utils.parametrize import type_before_parametrizations


class QuantizationMode(Enum):
    """How a node is quantized.

    STATIC   weights and activations, on grids that are known before the model runs
    DYNAMIC  weights, and inputs at each call
    WEIGHTS  weights only
    """

    STATIC = "static"
    DYNAMIC = "dynamic"
    WEIGHTS = "weights"


_QUANT_TYPES = {
    QuantizationMode.STATIC: QuantType.STATIC,
    QuantizationMode.DYNAMIC: QuantType.DYNAMIC,
    QuantizationMode.WEIGHTS: QuantType.WEIGHT_ONLY,
}


def users_forms(by_type: dict[QuantType, dict[type, Arg]], mode: QuantizationMode | None) -> dict[type, Arg]:
    """What users' modules become if they are quantized in a mode."""
    return by_type.get(_QUANT_TYPES[mode], {}) if mode is not None else {}


class Results(Enum):
    """The grid of an operation's results: one of their own, that of the input, or none, since they are no tensors."""

    OWN = "own"
    SHARED = "shared"
    NONE = "none"


@dataclass(frozen=True)
class QuantizedOperation:
    """What can be done with an operation.

    results      the grid of its results
    modes        how it can be quantized
    on_integers  quantized tensors can be passed to it as it is
    fixed        results are in a known range, so that only observers with a fixed grid fit
    weight       the position of a weight among the arguments, which has an observer of its own
    floats       positions of arguments that stay floats
    types        of the integers that are computed with
    """

    results: Results = Results.OWN
    modes: frozenset[QuantizationMode] = frozenset({QuantizationMode.STATIC})
    on_integers: bool = False
    fixed: bool = False
    weight: int | None = None
    floats: tuple[int, ...] = ()
    types: tuple[DType, ...] = (quint8,)


_OWN = QuantizedOperation()
_SHARED = QuantizedOperation(Results.SHARED, on_integers=True)
_FIXED = QuantizedOperation(on_integers=True, fixed=True)
_NONE = QuantizedOperation(Results.NONE, on_integers=True)
_LINEAR = QuantizedOperation(modes=frozenset({QuantizationMode.STATIC, QuantizationMode.DYNAMIC}))
_RECURRENT = QuantizedOperation(modes=frozenset({QuantizationMode.DYNAMIC}))
_TABLE = QuantizedOperation(modes=frozenset({QuantizationMode.WEIGHTS}))
CUSTOM = QuantizedOperation(modes=frozenset(QuantizationMode), types=(quint8, qint8))
"""Of users' own modules."""

_KEEP_GRID = (
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.Hardtanh, nn.ReLU, nn.ReLU6),
    *(nn.Identity, nn.PixelShuffle, nn.PixelUnshuffle),
)
_NOT_IN_GRAPHS = (nn.GroupNorm, nn.ReLU6, nni.LinearLeakyReLU, nni.LinearTanh)
"""Modules that only eager mode puts on integers, as in PyTorch."""

_MODULES: dict[type, QuantizedOperation] = {
    **{kind: _OWN for kind in DEFAULT_STATIC_QUANT_MODULE_MAPPINGS if kind not in _NOT_IN_GRAPHS},
    **dict.fromkeys((nni.ConvBn1d, nni.ConvBn2d, nni.ConvBn3d), _OWN),
    **dict.fromkeys((nni.ConvBnReLU1d, nni.ConvBnReLU2d, nni.ConvBnReLU3d), _OWN),
    **dict.fromkeys((nn.Linear, nni.LinearReLU, nni.LinearBn1d, QatLinear, DynamicQatLinear), _LINEAR),
    **dict.fromkeys((nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell), _RECURRENT),
    **dict.fromkeys((nn.Embedding, nn.EmbeddingBag, QatEmbedding, QatEmbeddingBag), _TABLE),
    **dict.fromkeys(_KEEP_GRID, _SHARED),
    **dict.fromkeys((nn.Sigmoid, nn.Hardsigmoid, nn.Tanh), _FIXED),
    nn.Softmax: QuantizedOperation(fixed=True),
}


def _each(names: str, operation: QuantizedOperation, prefix: str = "") -> dict[str, QuantizedOperation]:
    return {f"{prefix}{name}": operation for name in names.split()}


_TORCH, _F = "torch.", "torch.nn.functional."
_WEIGHTED = QuantizedOperation(weight=1, floats=(2,))
_FUNCTIONS: dict[str, QuantizedOperation] = {
    **_each("conv1d conv2d conv3d", _WEIGHTED, _TORCH),
    **_each("conv1d conv2d conv3d", _WEIGHTED, _F),
    **_each("linear", QuantizedOperation(modes=_LINEAR.modes, weight=1, floats=(2,)), _F),
    **_each("add mul", _OWN, "_operator."),
    **_each("add mul matmul", _OWN, _TORCH),
    **_each("elu hardswish leaky_relu dropout", _OWN, _F),
    **_each("layer_norm group_norm", QuantizedOperation(floats=(2, 3)), _F),
    **_each("instance_norm", QuantizedOperation(floats=(1, 2, 3, 4)), _F),
    **_each("sigmoid tanh", _FIXED, _TORCH),
    **_each("sigmoid tanh hardsigmoid", _FIXED, _F),
    **_each(
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d", _SHARED, _F
    ),
    **_each("max_pool1d max_pool2d max_pool3d hardtanh hardtanh_ relu relu6", _SHARED, _F),
    **_each("interpolate pixel_shuffle pixel_unshuffle", _SHARED, _F),
    **_each("adaptive_avg_pool1d avg_pool1d max_pool1d max_pool2d max_pool3d clamp mean", _SHARED, _TORCH),
    **_each("cat stack flatten narrow transpose squeeze unsqueeze repeat_interleave", _SHARED, _TORCH),
    **_each("pixel_shuffle pixel_unshuffle", _SHARED, _TORCH),
}
_METHODS: dict[str, QuantizedOperation] = {
    **_each("sigmoid sigmoid_ hardsigmoid hardsigmoid_ tanh tanh_", _FIXED),
    **_each("relu relu_ clamp mean contiguous detach detach_ repeat repeat_interleave", _SHARED),
    **_each("permute reshape resize_ squeeze squeeze_ transpose unsqueeze unsqueeze_ view", _SHARED),
    "size": _NONE,
}

BEFORE_RELU = {name for name, own in _FUNCTIONS.items() if own.weight is not None} | {
    *("_operator.add", "_operator.mul", "torch.add", "torch.mul")
}
"""Functions whose results are not observed where a ReLU follows at once: its results are."""

_LAYERS_BEFORE_RELU = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Likewise layers, where they are not fused with it: normalisation was folded in, or they are called twice."""

_QUANTIZED_FORMS = {
    **{f"torch.ao.nn.quantized.functional.{name}": name for name in ("conv1d", "conv2d", "conv3d", "linear")},
    **{f"torch.ao.nn.quantized.modules.functional_modules.{name}_scalar": name for name in ("add", "mul")},
}
"""Functions of converted models, and the names of those that they come from."""

_TO_SCALARS = {"_operator.add": "add", "torch.add": "add", "_operator.mul": "mul", "torch.mul": "mul"}


def name_of(node: Node) -> str:
    """The name of the function that a node calls, as its code has it; "" for other nodes."""
    return qualified_name(node.target) if node.op == "call_function" else ""


def base_of(node: Node, root: Module) -> str:
    """What a node of a float, prepared or converted model computes, in words that these have in common.

    It is "" for what moves elements, changes types, or is not in the tables.
    """
    if node.op == "call_module":
        kind = type_before_parametrizations(root.get_submodule(str(node.target)))
        base = _BASES.get(kind) or _float_base(kind)
        return base if base in _BASE_NAMES and kind is not nn.Identity else ""
    if node.op == "call_method":
        return str(node.target) if _METHODS.get(str(node.target)) is _FIXED else ""
    name = name_of(node)
    if name in _QUANTIZED_FORMS:
        return _QUANTIZED_FORMS[name]
    return name.rpartition(".")[2] if name in _FUNCTIONS or name == "torch.relu" else ""


def first_kind(kind: type) -> type:
    """The type of a float layer, also of one in training with rounding, or of the first of those that are fused."""
    kind = _FLOAT_KINDS.get(kind, kind)
    return (getattr(kind, "_PARTS", ()) or (kind,))[0]


def _float_base(kind: type) -> str:
    """The name of a float layer, or of the first of those that are fused."""
    return first_kind(kind).__name__


_FLOAT_KINDS = {quantized: kind for kind, quantized in get_embedding_qat_module_mappings().items()}


_BASE_NAMES = {_float_base(kind) for kind in _MODULES}
_BASES = {quantized: _float_base(kind) for kind, quantized in DEFAULT_QAT_MODULE_MAPPINGS.items()}
for _kind, _quantized in (
    *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS.items(),
    *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS.items(),
):
    _BASES.setdefault(_quantized, _BASES.get(_kind) or _float_base(_kind))


_ON_INTEGERS = set(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS.values())

_QUANTIZED_BEFORE_RELU = {
    mapping[kind]
    for mapping in (
        DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
        DEFAULT_QAT_MODULE_MAPPINGS,
    )
    for kind in _LAYERS_BEFORE_RELU
    if kind in mapping
}
"""The same layers in training with rounding, and quantized."""


def operation_of(node: Node, root: Module, custom: Collection[type] = ()) -> QuantizedOperation | None:
    """What can be done with a node; None if nothing. `custom` has users' types of modules for integers."""
    if node.op == "call_module":
        kind = type_before_parametrizations(root.get_submodule(node.target))
        return CUSTOM if kind in custom else _MODULES.get(kind)
    if node.op == "call_method":
        return _METHODS.get(node.target)
    if node.op != "call_function":
        return None
    if scalar_form(node):
        return QuantizedOperation(Results.SHARED)
    if node.target is getattr and node.args[1] in ("shape", "ndim", "dtype", "device"):
        return _NONE
    name = name_of(node)
    if name == "torch.relu":  # by itself, PyTorch leaves it on floats
        return _SHARED if relu_after(node.args[0], root) is node else None
    return _FUNCTIONS.get(name) if has_tensor(node) else None


def takes_integers(node: Node, root: Module) -> bool:
    """Whether a node of a converted model calls something that takes quantized tensors only."""
    if node.op == "call_module":
        return type(root.get_submodule(str(node.target))) in _ON_INTEGERS
    return name_of(node) in _QUANTIZED_FORMS


def _is_before_relu(node: Node, root: Module) -> bool:
    """Whether the only user of a node is a ReLU that it can be computed with."""
    if len(node.users) != 1:
        return False
    user = next(iter(node.users))
    name, is_sum = name_of(user), base_of(node, root) in ("add", "mul")
    if name == "torch.nn.functional.relu" or (name == "torch.relu" and is_sum):
        return True
    return user.op == "call_module" and type(root.get_submodule(str(user.target))) is nn.ReLU


def _precedes_relu(node: Node, root: Module) -> bool:
    """Whether a node calls something that can be computed together with a ReLU."""
    if node.op == "call_module":
        kind: Any = type_before_parametrizations(root.get_submodule(str(node.target)))
        return kind in _LAYERS_BEFORE_RELU or kind in _QUANTIZED_BEFORE_RELU
    return name_of(node) in BEFORE_RELU or name_of(node) in _QUANTIZED_FORMS


def relu_after(node: object, root: Module, end: Node | None = None) -> Node | None:
    """The ReLU that is computed together with a layer or function, or None. `end` is its normalisation, if any."""
    if not isinstance(node, Node) or not _precedes_relu(node, root):
        return None
    end = end or node
    return next(iter(end.users)) if _is_before_relu(end, root) else None


def scalar_form(node: Node) -> str:
    """ "add" or "mul" for a sum or product of one tensor and a number; "" for other nodes."""
    form = _TO_SCALARS.get(name_of(node), "")
    tensors = sum(map(is_tensor, node.args))
    return form if tensors == 1 and len(node.args) == 2 and not node.kwargs else ""


def is_tensor(arg: object) -> bool:
    """Whether an argument of a node is another one with a tensor."""
    return isinstance(arg, Node) and has_tensor(arg)


def has_tensor(node: Node) -> bool:
    """Whether the result of a node is, or has, a tensor, as far as its form says. What is made of sizes does not."""
    if node.op == "placeholder":  # unless its default is a number or a text
        return not (node.args and isinstance(node.args[0], int | float | str))
    if node.op == "call_method":
        return node.target not in ("size", "dim", "numel")
    if node.op != "call_function":
        return True
    if node.target is getattr and node.args[1] in ("shape", "ndim", "dtype", "device"):
        return False
    return any(map(has_tensor, node.all_input_nodes))


# --- what a QConfig asks for --------------------------------------------------------------------------------------


def type_of_weights(qconfig: AnyQConfig) -> DType | None:
    """The type that a `QConfig` asks weights to have; None if it says nothing of weights."""
    return getattr(qconfig.weight and qconfig.weight(), "dtype", None)


def mode_of(qconfig: AnyQConfig, operation: QuantizedOperation) -> QuantizationMode | None:
    """How a `QConfig` asks an operation to be quantized; None if that cannot be, so that it stays on floats.

    As in PyTorch, activations are quint8 and weights qint8. A layer with weights of another type has a mode
    nevertheless: its inputs and results are put on grids.
    """
    if qconfig is None:
        return None
    activation, weight = qconfig.activation(), type_of_weights(qconfig)
    dtype, mode = getattr(activation, "dtype", None), None
    if getattr(activation, "is_dynamic", False):
        if (dtype, weight) in ((quint8, qint8), (float16, float16)):
            mode = QuantizationMode.DYNAMIC
    elif dtype in operation.types:
        mode = QuantizationMode.STATIC if operation.weight is None or weight is qint8 else None
    elif dtype in (float32, float16) and weight is quint8:
        mode = QuantizationMode.WEIGHTS
    is_fixed = isinstance(activation, FixedQParamsObserver | FixedQParamsFakeQuantize)
    return mode if mode in operation.modes and (is_fixed or not operation.fixed) else None
