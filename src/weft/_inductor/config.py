"""Settings of PyTorch's own compiler. They can be read and set, and have no effect: XLA compiles."""

from __future__ import annotations

from weft._base.settings_module import become_settings

_OFF = (
    "aggressive_fusion autotune_in_subproc benchmark_kernel combo_kernels cudagraph_trees dce fallback_random "
    "force_disable_caches permute_fusion coordinate_descent_check_all_directions coordinate_descent_tuning "
    "cpp.enable_kernel_profile cpp.enable_loop_tail_vec cpp_wrapper debug deterministic disable_progress "
    "efficient_conv_bn_eval_fx_passes emulate_precision_casts epilogue_fusion_first fallback_by_default "
    "force_fuse_int_mm_with_mul force_same_precision "
    "freezing fx_graph_remote_cache group_fusion max_autotune max_autotune_gemm max_autotune_pointwise memory_planning "
    "nan_asserts profile_bandwidth reorder_for_compute_comm_overlap save_args selective_decompose trace.enabled "
    "trace.graph_diagram triton.autotune_at_compile_time triton.autotune_cublasLt triton.cudagraph_skip_dynamic_graphs "
    "triton.cudagraph_support_input_mutation triton.cudagraph_trees_history_recording triton.cudagraphs "
    "triton.debug_sync_graph triton.debug_sync_kernel triton.dense_indexing triton.multi_kernel "
    "triton.unique_user_kernel_names use_fast_math verbose_progress"
)
_ON = (
    "allow_buffer_reuse batch_fusion comprehensive_padding conv_1x1_as_mm constant_and_index_propagation "
    "cpp.fallback_scatter_reduce_sum cpp.weight_prepack cpp.simdlen_check epilogue_fusion fx_graph_cache "
    "inplace_buffers joint_graph_constant_folding layout_optimization pattern_matcher pick_loop_orders "
    "prologue_fusion reorder_for_locality reorder_for_peak_memory scalar_asserts shape_padding size_asserts "
    "split_cat_fx_passes split_reductions triton.cudagraph_trees triton.persistent_reductions "
    "triton.slow_path_cudagraph_asserts triton.unique_kernel_names unroll_reductions use_dce use_joint_graph_passes "
    "use_mixed_mm use_post_grad_passes use_pre_grad_passes triton.reorder_for_reducing_graph_partitions"
)

become_settings(
    __name__,
    {
        **dict.fromkeys(_OFF.split(), False),
        **dict.fromkeys(_ON.split(), True),
        "compile_threads": 1,
        "cpp.cxx": (None, "g++"),
        "cpp.simdlen": None,
        "cpp.threads": -1,
        "cpu_backend": "cpp",
        "cuda_backend": "triton",
        "max_autotune_gemm_backends": "ATEN,TRITON,CPP",
        "mixed_mm_choice": "heuristic",
        "post_grad_custom_post_pass": None,
        "post_grad_custom_pre_pass": None,
        "joint_custom_post_pass": None,
        "joint_custom_pre_pass": None,
        "realize_reads_threshold": 4,
        "realize_opcount_threshold": 30,
        "unroll_reductions_threshold": 8,
    },
)
