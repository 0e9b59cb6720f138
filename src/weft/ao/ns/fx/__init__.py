"""Matching graphs, loggers in them, and measures of how far two tensors depart, under PyTorch's import path."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__, {}, ("graph_matcher", "graph_passes", "n_shadows", "qconfig_multi_mapping", "utils", "weight_utils")
)
