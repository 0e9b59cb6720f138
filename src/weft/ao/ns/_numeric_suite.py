"""The numeric suite of eager mode: weights and activations of a float model beside those of its quantized form."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from weft._base.dtype import quint8
from weft._base.guards import is_list, is_plain_tuple
from weft._base.types import AnyCallable, Arg, PyTree, Result, SavedState
from weft._base.usage import log_api_usage_once
from weft._tensor.quantized.encoding import is_quantized
from weft._tensor.tensor import Tensor
from weft.ao._observing.qconfig import QConfig
from weft.ao.nn.quantized.dynamic.modules.linear import Linear as DynamicLinear
from weft.ao.nn.quantized.dynamic.modules.rnn import LSTM as DynamicLSTM
from weft.ao.nn.quantized.modules.linear import Linear as QuantizedLinear
from weft.ao.nn.quantized.modules.stubs import DeQuantize
from weft.ao.quantization.quantization_mappings import get_default_compare_output_module_list
from weft.ao.quantization.quantize import prepare
from weft.nn._module import Module
from weft.nn._rnn import LSTM
from weft.nn._tables import children_of

NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST = {DynamicLinear, QuantizedLinear, DynamicLSTM, LSTM}
"""Quantized modules that keep their weights in submodules, and are recorded nevertheless."""

Compared = dict[str, dict[str, Any]]
"""By name of an entry or a module: what the float model has ("float"), and the quantized one ("quantized")."""


def _place(key: str, levels: int) -> str:
    """The module of an entry: its path without the last names, and without dots, as PyTorch compares paths."""
    return "".join(key.split(".")[:-levels])


def _match(keys: Iterable[str], key: str, last: str) -> str | None:
    """The first of `keys` that belongs to the module of `key`, or to a part of it, if `key` ends with `last`."""
    if key.split(".")[-1] != last:
        return None
    places = [_place(key, 1)]
    if last == "_packed_params":  # the entry of a submodule that keeps the weight
        places.append(_place(key, 2))
    candidates = list(keys)
    for place in places:
        for other in candidates:
            if (place or last != "_packed_params") and place in (_place(other, 1), _place(other, 2)):
                return other
    return None


def compare_weights(float_dict: SavedState, quantized_dict: SavedState) -> Compared:
    """The weights in the state dicts of a float model and of its quantized form.

    Keys are those of the quantized weights. Of a recurrent layer, it is the weight of the state.
    """
    log_api_usage_once("quantization_api._numeric_suite.compare_weights")
    pairs: Compared = {}
    for key, entry in quantized_dict.items():
        match = _match(float_dict, key, "weight")
        if match is not None:
            pairs[key] = {"float": float_dict[match], "quantized": entry}
            continue
        match = _match(float_dict, key, "_packed_params")
        if match is not None:
            pairs[key] = {"float": float_dict[match], "quantized": entry[0]}
        *module, values, layer, name = ["", "", *key.split(".")]
        if (values, name) == ("_all_weight_values", "param"):
            own = f"{'.'.join(filter(None, module))}.weight_hh_l{layer}"
            if own in float_dict:
                pairs[key] = {"float": float_dict[own], "quantized": entry[1]}
    return pairs


# --- loggers ------------------------------------------------------------------------------------------------------


class Logger(Module):
    """The base of loggers: modules that record what passes through them in `stats`."""

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, PyTree] = {}
        self.dtype = quint8

    def forward(self, x: PyTree, *more: Arg) -> Result:
        """Records nothing."""


class ShadowLogger(Logger):
    """Records the results of a quantized module ("quantized") and of its float shadow ("float")."""

    def __init__(self) -> None:
        super().__init__()
        self.stats["float"] = []
        self.stats["quantized"] = []

    def forward(self, x: PyTree, *more: Arg) -> None:
        """Record results; of several, and of a batch with more than one example, the first."""
        x, y = (first[0] if len(first) > 1 else first for first in (x, *more))
        self.stats["quantized"].append(x.detach())
        self.stats["float"].append(y.detach())


class OutputLogger(Logger):
    """Records the results of a module ("tensor_val")."""

    def __init__(self) -> None:
        super().__init__()
        self.stats["tensor_val"] = []

    def forward(self, x: PyTree, *more: Arg) -> Result:
        """Record results, and return them."""
        del more
        self.stats["tensor_val"].append(x)
        return x


def get_logger_dict(mod: Module, prefix: str = "") -> dict[str, dict[str, PyTree]]:
    """What the loggers in a model have recorded, by the paths of the modules that they belong to, plus ".stats"."""
    log_api_usage_once("quantization_api._numeric_suite.get_logger_dict")
    records: dict[str, dict[str, PyTree]] = {}
    for path, module in mod.named_modules(prefix=prefix):
        logger = next((child for child in module.children() if isinstance(child, Logger)), None)
        if logger is not None:
            records[f"{path}.stats" if path else "stats"] = logger.stats
    return records


# --- module by module -----------------------------------------------------------------------------------------------


def _as_lists(x: PyTree) -> PyTree:
    return [_as_lists(part) for part in x] if is_plain_tuple(x) else x


def _numbers(x: PyTree) -> PyTree:
    if is_list(x):
        return [_numbers(part) for part in x]
    return x.dequantize() if isinstance(x, Tensor) and is_quantized(x) else x


class Shadow(Module):
    """A quantized module with the float one as its shadow: both get the same input, and a logger both results.

    q_module      is called, and its result returned
    float_module  is called with the numbers of the input
    logger_cls    makes the logger, which is called with both results
    """

    def __init__(self, q_module: Module, float_module: Module, logger_cls: AnyCallable) -> None:
        super().__init__()
        self.orig_module = q_module
        self.shadow_module = float_module
        self.dequant = DeQuantize()
        self.logger = logger_cls()

    def _both(self, name: str, *args: Arg) -> Result:
        result = getattr(self.orig_module, name)(*args)
        self.logger(result, getattr(self.shadow_module, name)(*[_numbers(x) for x in args]))
        return result

    def forward(self, *x: Arg) -> Result:
        """The quantized module's result."""
        return self._both("__call__", *_as_lists(x))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        return self._both("add", x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """x + y for a number y."""
        return self._both("add_scalar", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x y, element by element."""
        return self._both("mul", x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """x y for a number y."""
        return self._both("mul_scalar", x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Tensors joined along a dim."""
        return self._both("cat", list(x), dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """The positive part of x + y."""
        return self._both("add_relu", x, y)


def prepare_model_with_stubs(
    float_module: Module, q_module: Module, module_swap_list: Collection[type], logger_cls: AnyCallable
) -> None:
    """Give modules of a quantized model their float forms as shadows, in place, where the float type is listed."""
    log_api_usage_once("quantization_api._numeric_suite.prepare_model_with_stubs")
    floats = dict(float_module.named_children())
    for name, module in list(q_module.named_children()):
        if name not in floats:
            continue
        own = floats[name]
        if type(own) not in module_swap_list:
            prepare_model_with_stubs(own, module, module_swap_list, logger_cls)
        elif [type(m) for m in module.modules()] != [type(m) for m in own.modules()]:
            children_of(q_module)[name] = Shadow(module, own, logger_cls)


def compare_model_stub(
    float_model: Module,
    q_model: Module,
    module_swap_list: Collection[type],
    *data: Arg,
    logger_cls: AnyCallable = ShadowLogger,
) -> Compared:
    """The results of modules and of their float forms for the same inputs: the error of each module by itself.

    Modules whose float type is in `module_swap_list` become `Shadow`s, in place; then that model runs on the data.
    """
    log_api_usage_once("quantization_api._numeric_suite.compare_model_stub")
    prepare_model_with_stubs(float_model, q_model, module_swap_list, logger_cls)
    q_model(*data)
    return get_logger_dict(q_model)


# --- the whole model ------------------------------------------------------------------------------------------------


def get_matching_activations(float_module: Module, q_module: Module) -> Compared:
    """What the loggers of both models have recorded at the same places."""
    log_api_usage_once("quantization_api._numeric_suite.get_matching_activations")
    recorded = get_logger_dict(float_module)
    pairs: Compared = {}
    for key, stats in get_logger_dict(q_module).items():
        if not stats["tensor_val"]:
            continue
        match = _match(sorted(recorded, reverse=True), key, "stats")
        if match is not None:
            pairs[key] = {"float": recorded[match]["tensor_val"], "quantized": stats["tensor_val"]}
    return pairs


def prepare_model_outputs(
    float_module: Module,
    q_module: Module,
    logger_cls: AnyCallable = OutputLogger,
    allow_list: Collection[object] | None = None,
) -> None:
    """Put loggers after the modules of both models, in place, if their types are allowed; by default, all are."""
    log_api_usage_once("quantization_api._numeric_suite.prepare_model_outputs")
    types = get_default_compare_output_module_list() if allow_list is None else allow_list
    qconfig = QConfig(activation=logger_cls, weight=None)
    float_module.qconfig = q_module.qconfig = qconfig
    prepare(float_module, inplace=True, allow_list=types, prepare_custom_config_dict={})
    prepare(
        q_module,
        inplace=True,
        allow_list=types,
        observer_non_leaf_module_list=NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST,
        prepare_custom_config_dict={},
    )


def compare_model_outputs(
    float_model: Module,
    q_model: Module,
    *data: Arg,
    logger_cls: AnyCallable = OutputLogger,
    allow_list: Collection[object] | None = None,
) -> Compared:
    """The results of the same modules of both models, run on the same data: the error that has added up until there.

    Both models get loggers, in place.
    """
    log_api_usage_once("quantization_api._numeric_suite.compare_model_outputs")
    prepare_model_outputs(float_model, q_model, logger_cls, allow_list)
    float_model(*data)
    q_model(*data)
    return get_matching_activations(float_model, q_model)
