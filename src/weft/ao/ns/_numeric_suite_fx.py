"""The numeric suite of graph mode: its loggers, and the comparison of what they have recorded.

What looks for matching nodes of two graphs needs models of `quantize_fx`, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, UnsupportedError
from weft.nn._module import Module

Results = dict[str, dict[str, dict[str, list[dict[str, Any]]]]]
"""By layer, kind of results and model: records, each with "values" and the place of the argument."""


class OutputLogger(Module):
    """Records the results of a node, with what is known of it."""

    def __init__(
        self,
        ref_node_name: str,
        prev_node_name: str,
        model_name: str,
        ref_name: str,
        prev_node_target_type: str,
        ref_node_target_type: str,
        results_type: str,
        index_within_arg: int,
        index_of_arg: int,
        fqn: str | None,
        qconfig_str: str | None = "",
    ) -> None:
        super().__init__()
        self.stats: list[Any] = []
        self.stats_rnn: list[Any] = []
        self.ref_node_name, self.prev_node_name = ref_node_name, prev_node_name
        self.model_name, self.ref_name = model_name, ref_name
        self.prev_node_target_type, self.ref_node_target_type = prev_node_target_type, ref_node_target_type
        self.results_type = results_type
        self.index_within_arg, self.index_of_arg = index_within_arg, index_of_arg
        self.fqn, self.qconfig_str = fqn, qconfig_str
        self.enabled = self.save_activations = True

    def forward(self, x: Any, *more: Any) -> Any:
        """Record a tensor, or the results of a recurrent layer, and return it."""
        del more
        if self.enabled and self.save_activations:
            if isinstance(x, Tensor):
                self.stats.append(x.detach())
            elif isinstance(x, tuple) and len(x) == 2 and len(x[1]) == 2:
                self.stats_rnn.append((x[0].detach(), tuple([state.detach() for state in x[1]])))
        return x

    def __repr__(self) -> str:
        own = {key: value for key, value in vars(self).items() if key != "training" and not key.startswith("_")}
        return f"{type(self).__name__}({own})"


class OutputComparisonLogger(OutputLogger):
    """Records how far results depart from a reference, by `comparison_fn`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.comparison_fn: Callable[[Any, Any], Any] | None = None
        self.comparison_fn_name = ""
        self.comparisons: list[Any] = []

    def forward(self, x: Any, *more: Any) -> Any:
        """Record `comparison_fn(x, x_ref)` and, if asked to, `x`; return `x`."""
        if self.enabled and self.comparison_fn is not None:
            if self.save_activations:
                self.stats.append(x.detach())
            self.comparisons.append(self.comparison_fn(x, *more))
        return x


def extend_logger_results_with_comparison(
    results: Results,
    model_name_1: str,
    model_name_2: str,
    comparison_fn: Callable[[Any, Any], Any],
    comparison_name: str,
) -> None:
    """Add to each record of the second model how far it departs from the first one's, in place.

    `results` has, by layer, kind of results and model, records with "values", "index_within_arg" and "index_of_arg".
    `AssertionError`, before anything is added, where the first model lacks a record.
    """
    groups = [models for kinds in results.values() for models in kinds.values()]
    pairs = [pair for models in groups for pair in _pairs(models, model_name_1, model_name_2)]
    for reference, record in pairs:
        values = zip(reference["values"], record["values"], strict=False)
        record[comparison_name] = [comparison_fn(a, b) for a, b in values]


def _pairs(models: dict[str, list[dict[str, Any]]], first: str, second: str) -> list[tuple[Any, Any]]:
    for name in (first, second):
        if name not in models:
            raise PreconditionError(f"{name} not found in results, which have {', '.join(models)}")
    by_place = {_place(record): record for record in reversed(models[first])}
    for record in models[second]:
        if _place(record) not in by_place:
            raise PreconditionError(f"{first} has no record for argument {_place(record)} of {second}")
    return [(by_place[_place(record)], record) for record in models[second]]


def _place(record: dict[str, Any]) -> tuple[int, int]:
    return record["index_within_arg"], record["index_of_arg"]


def loggers_set_enabled(model: Module, enabled: bool) -> None:
    """Let the loggers of a model record, or not."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.enabled = enabled


def loggers_set_save_activations(model: Module, save_activations: bool) -> None:
    """Let the loggers of a model keep tensors, or not."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.save_activations = save_activations


def _of_graphs(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(
            f"ao.ns._numeric_suite_fx.{name}: there is no quantization of graphs; use ao.ns._numeric_suite, or "
            "weft.utils.compare(model, quantized, inputs)"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raises `NotImplementedError`: there is no quantization of graphs."
    return refuse


extract_weights = _of_graphs("extract_weights")
add_loggers = _of_graphs("add_loggers")
extract_logger_info = _of_graphs("extract_logger_info")
add_shadow_loggers = _of_graphs("add_shadow_loggers")
extract_shadow_logger_info = _of_graphs("extract_shadow_logger_info")
prepare_n_shadows_model = _of_graphs("prepare_n_shadows_model")
convert_n_shadows_model = _of_graphs("convert_n_shadows_model")
extract_results_n_shadows_model = _of_graphs("extract_results_n_shadows_model")
print_comparisons_n_shadows_model = _of_graphs("print_comparisons_n_shadows_model")
