"""Settings of PyTorch's code generator, for programs that set them. They have no effect: XLA generates the code."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace

aggressive_fusion = False
autotune_in_subproc = False
benchmark_kernel = False
combo_kernels = False
compile_threads = 1
conv_1x1_as_mm = False
coordinate_descent_tuning = False
cpp_wrapper = False
cudagraph_trees = True
debug = False
dce = True
emulate_precision_casts = False
epilogue_fusion = True
fallback_random = False
force_disable_caches = False
force_fuse_int_mm_with_mul = False
force_same_precision = False
freezing = False
fx_graph_cache = True
fx_graph_remote_cache = None
max_autotune = False
max_autotune_gemm = False
max_autotune_pointwise = False
permute_fusion = False
reorder_for_compute_comm_overlap = False
shape_padding = True
size_asserts = True
split_reductions = True
triton = SimpleNamespace(cudagraphs=False, cudagraph_trees=True, unique_kernel_names=True)
cpp = SimpleNamespace(threads=-1, simdlen=None)
trace = SimpleNamespace(enabled=False)


def patch(
    changes: str | Mapping[str, object] | None = None, value: object = None, **options: object
) -> nullcontext[None]:
    """A block in which nothing is set."""
    del changes, value, options
    return nullcontext()


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, object]:
    """The settings that a mode of `compile` stands for: none."""
    del mode, dynamic
    return {}


def list_options() -> list[str]:
    """The names of the settings."""
    return sorted(name for name, value in globals().items() if name[0] != "_" and isinstance(value, (bool, int)))
