"""Settings of functions that a backend compiles, under PyTorch's names.

These have an effect: `disable`, `error_on_recompile`, `fail_on_recompile_limit_hit`, `recompile_limit` and
`suppress_errors`. All others can be read and set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._dynamo._settings import become_settings

_OFF = (
    "allow_empty_graphs allow_ignore_mark_dynamic allow_rnn allow_unspec_int_on_nn_module caching_precompile "
    "capture_dynamic_output_shape_ops capture_profiler_record_function capture_scalar_outputs compiled_autograd "
    "cprofile cudagraph_backend_keep_input_mutation cudagraph_backend_support_input_mutation disable "
    "do_not_emit_runtime_asserts dont_skip_tracing enable_compiler_collectives enable_cpp_symbolic_shape_guards "
    "error_on_recompile fail_on_recompile_limit_hit fake_tensor_cache_crosscheck_enabled force_compile_during_fx_trace "
    "inline_invoke_subgraph log_graph_in_out_metadata nested_graph_breaks only_allow_pt2_compliant_ops "
    "optimize_ddp_lazy_compile prefer_deferred_runtime_asserts_over_guards prepare_freezing "
    "raise_on_unsafe_aot_autograd replay_record_enabled repro_forward_only repro_ignore_non_fp "
    "skip_fwd_side_effects_in_bwd_under_checkpoint skip_guards_on_constant_func_defaults specialize_float "
    "specialize_int strict_precompile suppress_errors trace_autograd_ops use_graph_deduplication "
    "use_numpy_random_stream verbose verify_correctness wrap_top_frame install_free_tensors"
)
_ON = (
    "assume_dunder_attributes_remain_unchanged assume_static_by_default automatic_dynamic_local_pgo "
    "automatic_dynamic_shapes capture_autograd_function capture_func_transforms capture_sparse_compute dynamic_shapes "
    "enable_aot_compile enable_cpp_guard_manager enable_faithful_generator_behavior enable_trace_contextlib "
    "error_on_nested_fx_trace error_on_nested_jit_trace fake_tensor_cache_enabled fake_tensor_disable_inference_mode "
    "force_nn_module_property_static_shapes force_parameter_static_shapes graph_break_on_nn_param_ctor "
    "guard_nn_modules inline_inbuilt_nn_modules issue_3_13_0_warning log_compilation_metrics optimize_ddp "
    "raise_on_ctx_manager_usage record_runtime_overhead replay_side_effects report_guard_failures "
    "rewrite_assert_with_torch_assert run_gc_after_compile same_two_models_use_fp64 "
    "skip_code_recursive_on_recompile_limit_hit skip_fsdp_guards skip_nnmodule_hook_guards "
    "skip_no_tensor_aliasing_guards_on_parameters skip_torchrec trace_numpy use_lazy_graph_module"
)

if TYPE_CHECKING:
    disable: bool
    error_on_recompile: bool
    fail_on_recompile_limit_hit: bool
    recompile_limit: int
    suppress_errors: bool

become_settings(
    __name__,
    {
        **dict.fromkeys(_OFF.split(), False),
        **dict.fromkeys(_ON.split(), True),
        "recompile_limit": 8,
        "accumulated_recompile_limit": 256,
        "minimum_call_count": 1,
        "automatic_dynamic_remote_pgo": None,
        "automatic_dynamic_shapes_mark_as": "dynamic",
        "compiled_autograd_kwargs_override": {},
        "dead_code_elimination": None,
        "debug_backend_override": "",
        "debug_dir_root": "torch_compile_debug",
        "ignore_logging_functions": set(),
        "log_file_name": None,
        "log_level": None,
        "nontraceable_tensor_subclasses": set(),
        "numpy_default_complex": "complex128",
        "numpy_default_float": "float64",
        "numpy_default_int": "int64",
        "reorderable_logging_functions": set(),
        "repro_after": None,
        "repro_level": 2,
        "repro_tolerance": 0.001,
        "side_effect_replay_policy": "info",
        "skipfiles_inline_module_allowlist": {},
        "traceable_tensor_subclasses": set(),
    },
    {"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit"},
)
