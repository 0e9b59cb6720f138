"""Where the names are that PyTorch has in modules which hold no code here: one entry for each such module.

Paths are relative to `weft`. An entry is one of these, and several of the first two kinds stand between semicolons:

    "optim.adamw": "optim: AdamW"                    the names, after the module that has them (`new=old` renames one)
    "xpu.memory": "xpu: *"                           all names of another module
    "nn.modules": "*"                                all names of the modules below it
    "nn.quantized": "ao.nn.quantized.*"              another package, and every module below that
    "onnx.symbolic_opset11": ""                      nothing

`finder.py` makes the modules when they are imported. A real package below which there are such modules ends with
`_serve_below(__name__)`.
"""

from __future__ import annotations

TABLE = {
    "_C": (
        "_absent.denied: _has_cuda=has_cuda _has_mps=has_mps _has_xpu=has_xpu _is_torch_dispatch_mode_enabled "
        "_jit_can_fuse_on_cpu _jit_can_fuse_on_cpu_legacy _jit_can_fuse_on_gpu _jit_get_inline_everything_mode "
        "_jit_llga_enabled _jit_nvfuser_enabled _jit_texpr_fuser_enabled _jit_texpr_reductions_enabled; "
        "_absent.errors: ErrorReport FatalError JITException; _absent.ignored: _cuda_clearCublasWorkspaces "
        "_error_if_any_worker_fails _jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_cpu_legacy "
        "_jit_override_can_fuse_on_gpu _jit_set_autocast_mode _jit_set_bailout_depth _jit_set_emit_hooks "
        "_jit_set_fusion_strategy _jit_set_inline_everything_mode _jit_set_llga_enabled _jit_set_logging_option "
        "_jit_set_num_profiled_runs _jit_set_nvfuser_enabled _jit_set_nvfuser_guard_mode "
        "_jit_set_nvfuser_horizontal_mode _jit_set_nvfuser_single_node_mode _jit_set_profiling_executor "
        "_jit_set_profiling_mode _jit_set_symbolic_shapes_test_mode _jit_set_te_cuda_pointwise_block_count "
        "_jit_set_te_cuda_pointwise_block_size _jit_set_te_cuda_pointwise_loop_levels _jit_set_te_generate_block_code "
        "_jit_set_te_must_use_llvm_cpu _jit_set_texpr_dynamic_shape_enabled _jit_set_texpr_fuser_enabled "
        "_jit_set_texpr_reductions_enabled _jit_set_tracer_state_warn _jit_texpr_set_fallback_allowed "
        "_remove_worker_pids _set_math_sdp_allow_fp16_bf16_reduction _set_print_stack_traces_on_fatal_signal "
        "_set_worker_pids _set_worker_signal_handlers; _absent.refused: _create_graph_by_tracing "
        "_jit_pass_canonicalize _jit_pass_constant_propagation _jit_pass_cse _jit_pass_dce _jit_pass_inline "
        "_jit_pass_lint _jit_pass_lower_graph _jit_pass_onnx _jit_pass_onnx_function_substitution "
        "_jit_pass_optimize_for_mobile _jit_pass_peephole _storage_Use_Count import_ir_module parse_ir parse_schema; "
        "_absent.types: AliasDb AnyType Argument Block BoolType CallStack ClassType Code CompilationUnit ComplexType "
        "DeviceObjType DictType EnumType FileCheck FloatType FunctionSchema FutureType Graph GraphExecutorState "
        "InferredType IntType InterfaceType ListType LiteScriptModule Node NoneType NumberType OptionalType "
        "PyObjectType RRefType ScriptClass ScriptDict ScriptList ScriptMethod ScriptObject StreamObjType StringType "
        "SymBoolType SymIntType TensorType ThroughputBenchmark TracingState TupleType Type UnionType Use Value "
        "_TensorIterator; _base.device: device; _base.dtype: dtype=DType; _base.layout: layout memory_format qscheme; "
        "_base.limits: finfo iinfo; _base.size: Size; _base.usage: _log_api_usage_once=log_api_usage_once; "
        "_checkpoint.records: PyTorchFileReader PyTorchFileWriter; _devices.streams: Event Stream; _extension: "
        "DisableTorchFunction DisableTorchFunctionSubclass DispatchKey DispatchKeySet _EnableTorchFunction "
        "_ExcludeDispatchKeyGuard _TensorMeta _VariableFunctionsClass _are_functorch_transforms_active "
        "_current_autograd_node _current_graph_task_id _get_accelerator _get_cudnn_enabled _get_default_device "
        "_get_function_stack_at _get_privateuse1_backend_name _get_tracing_state _is_torch_function_all_disabled "
        "_is_torch_function_enabled _is_torch_function_mode_enabled _is_tracing _len_torch_function_stack "
        "_pop_torch_function_stack _push_on_torch_function_stack; _interop.operators: Tag; _tensor.base: TensorBase "
        "_TensorBase=TensorBase; _tensor.generator: Generator; _tensor.overriding: "
        "_disabled_torch_dispatch_impl=no_dispatch _disabled_torch_function_impl=disabled; _tensor.storage: "
        "StorageBase=UntypedStorage; autograd.function: _FunctionBase=Function; autograd.graph: _NodeBase=Node; "
        "errors: AcceleratorError=DeviceError OutOfMemoryError _LinAlgError=LinAlgError "
        "_OutOfMemoryError=OutOfMemoryError; futures: Future; jit: ScriptFunction ScriptModule; nn.attention: "
        "_SDPBackend=SDPBackend"
    ),
    "_C._autograd": (
        "_absent.denied: _profiler_enabled; _absent.types: ProfilerConfig ProfilerState; profiler: DeviceType "
        "ProfilerActivity"
    ),
    "_C._distributed_c10d": (
        "_absent.ignored: _register_builtin_comm_hook _register_comm_hook; _absent.types: Logger Reducer; distributed: "
        "FileStore HashStore PrefixStore ProcessGroup ReduceOp Store TCPStore Work"
    ),
    "_C._distributed_rpc": (
        "_absent.types: RpcAgent TensorPipeAgent; distributed.rpc: PyRRef=RRef RpcBackendOptions WorkerInfo "
        "_TensorPipeRpcBackendOptionsBase=TensorPipeRpcBackendOptions; distributed.rpc.api: _is_current_rpc_agent_set"
    ),
    "_C._functorch": (
        "_absent.ignored: maybe_current_level peek_interpreter_stack; _absent.refused: _add_batch_dim "
        "_grad_decrement_nesting _grad_increment_nesting _remove_batch_dim _unwrap_batched _vmap_decrement_nesting "
        "_vmap_increment_nesting _wrap_for_grad maybe_get_bdim maybe_get_level; _absent.types: CGradInterpreterPtr "
        "CInterpreter CVmapInterpreterPtr RandomnessType TransformType; func._wrapped: get_unwrapped is_batchedtensor "
        "is_functionaltensor is_functorch_wrapped_tensor is_gradtrackingtensor is_legacy_batchedtensor"
    ),
    "_C._nn": "_extension: _parse_to; nn.functional: *",
    "_C._profiler": "profiler._callbacks: RecordScope; profiler: ProfilerActivity _ExperimentalConfig",
    "_custom_ops": "library: custom_op get_ctx",
    "_decomp": "fx.experimental.decompositions: *",
    "_dynamo._trace_wrapped_higher_order_op": "_interop.control: TransformGetItemToIndex",
    "_dynamo.backends": "*",
    "_dynamo.backends.common": "_dynamo._aot: aot_autograd",
    "_dynamo.backends.debugging": "_dynamo._explain: ExplainOutput explain",
    "_dynamo.backends.registry": "_dynamo: list_backends lookup_backend register_backend; _dynamo.exc: InvalidBackend",
    "_dynamo.decorators": "_dynamo: *",
    "_dynamo.eval_frame": (
        "_dynamo: OptimizedModule explain is_dynamo_supported optimize optimize_assert; compiler: disable reset "
        "set_stance"
    ),
    "_dynamo.external_utils": "compiler: is_compiling",
    "_functorch": "*",
    "_functorch.aot_autograd": (
        "_dynamo._aot: aot_function aot_module aot_module_simplified make_boxed_compiler make_boxed_func"
    ),
    "_functorch.apis": "func: grad grad_and_value vmap",
    "_functorch.compilers": "_dynamo._aot: make_boxed_func nop print_compile",
    "_functorch.eager_transforms": "func: functionalize grad_and_value hessian jacfwd jacrev jvp linearize vjp",
    "_functorch.functional_call": "func: functional_call stack_module_state",
    "_functorch.make_functional": (
        "func._functional_modules: FunctionalModule FunctionalModuleWithBuffers combine_state_for_ensemble "
        "make_functional make_functional_with_buffers"
    ),
    "_functorch.vmap": (
        "_absent.refused: _add_batch_dim _create_batched_inputs _maybe_remove_batch_dim "
        "_process_batched_inputs _remove_batch_dim _unwrap_batched; _tensor.tensor: Tensor; func: vmap; func._wrapped: "
        "_get_name=name_of_function is_batchedtensor; utils._pytree: _broadcast_to_and_flatten tree_flatten "
        "tree_unflatten"
    ),
    "_guards": (
        "_absent.types: CompileContext CompileId Guard GuardSource Source TracingContext; utils._fake_tensor: "
        "active_fake_mode detect_fake_mode"
    ),
    "_higher_order_ops": "_interop.control: cond while_loop; func._scans: associative_scan map scan",
    "_higher_order_ops.associative_scan": "func._scans: associative_scan",
    "_higher_order_ops.cond": "_interop.control: cond",
    "_higher_order_ops.map": "func._scans: map",
    "_higher_order_ops.scan": "func._scans: scan",
    "_higher_order_ops.while_loop": "_interop.control: while_loop",
    "_inductor.codecache": "_absent.types: CppCodeCache FxGraphCache PyCodeCache",
    "_inductor.compile_fx": "_dynamo._backends: compile_fx=by_xla",
    "_inductor.cpp_builder": "_absent.refused: get_cpp_compiler",
    "_inductor.cpu_vec_isa": "_absent.denied: valid_vec_isa_list; _absent.refused: pick_vec_isa",
    "_inductor.exc": "_absent.errors: CppCompileError InductorError LoweringException",
    "_inductor.runtime": "",
    "_inductor.runtime.cache_dir_utils": "_absent.refused: cache_dir",
    "_inductor.utils": "_absent.denied: is_big_gpu; _absent.refused: run_and_get_code",
    "_jit_internal": (
        "jit: Future export ignore is_scripting unused; jit._annotations: _overload _overload_method; jit._internal: "
        "FunctionModifiers _copy_to_script_wrapper boolean_dispatch get_torchscript_modifier; jit.annotations: "
        "BroadcastingList1 BroadcastingList2 BroadcastingList3"
    ),
    "_lobpcg": "weft: lobpcg",
    "_logging": "_base.logs: set_logs",
    "_lowrank": "weft: pca_lowrank svd_lowrank",
    "_ops": "ops._namespaces: HigherOrderOperator OpOverload OpOverloadPacket",
    "_sources": "_absent.refused: get_source_lines_and_file parse_def",
    "_subclasses": (
        "utils._fake_tensor: DynamicOutputShapeException FakeTensor FakeTensorMode UnsupportedFakeTensorException"
    ),
    "_subclasses.fake_tensor": (
        "utils._fake_tensor: DataDependentOutputException DynamicOutputShapeException FakeTensor FakeTensorConverter "
        "FakeTensorMode UnsupportedFakeTensorException is_fake unset_fake_temporarily"
    ),
    "_subclasses.functional_tensor": (
        "_absent.types: FunctionalTensor FunctionalTensorMode; utils._fake_tensor: mb_unwrap_functional_tensor"
    ),
    "_subclasses.meta_utils": "_absent.types: MetaConverter",
    "_tensor_str": (
        "_tensor.display: PRINT_OPTS=_options _add_suffixes=joined _str=show _str_intern=shown_with "
        "_tensor_str=elements_text get_printoptions printoptions set_printoptions"
    ),
    "_vmap_internals": "func: vmap",
    "ao.quantization.fake_quantize": (
        "ao.quantization: FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize "
        "default_affine_fixed_qparams_fake_quant default_dynamic_fake_quant default_embedding_fake_quant "
        "default_fake_quant default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_neg1to1_fake_quant "
        "default_fused_act_fake_quant default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant "
        "default_histogram_fake_quant default_per_channel_weight_fake_quant default_symmetric_fixed_qparams_fake_quant "
        "default_weight_fake_quant disable_fake_quant disable_observer enable_fake_quant enable_observer "
        "fused_per_channel_wt_fake_quant_range_neg_127_to_127 fused_wt_fake_quant_range_neg_127_to_127"
    ),
    "ao.quantization.fx._decomposed": "",
    "ao.quantization.observer": (
        "ao.quantization: FixedQParamsObserver HistogramObserver MinMaxObserver MovingAverageMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerChannelMinMaxObserver PlaceholderObserver "
        "RecordingObserver ReuseInputObserver UniformQuantizationObserverBase default_affine_fixed_qparams_observer "
        "default_debug_observer default_dynamic_quant_observer default_fixed_qparams_range_0to1_observer "
        "default_fixed_qparams_range_neg1to1_observer default_float_qparams_observer default_histogram_observer "
        "default_observer default_per_channel_weight_observer default_placeholder_observer "
        "default_reuse_input_observer default_symmetric_fixed_qparams_observer default_weight_observer "
        "get_observer_state_dict load_observer_state_dict per_channel_weight_observer_range_neg_127_to_127 "
        "weight_observer_range_neg_127_to_127"
    ),
    "ao.quantization.qconfig": (
        "ao.quantization: QConfig QConfigAny QConfigDynamic default_activation_only_qconfig default_debug_qconfig "
        "default_dynamic_qat_qconfig default_dynamic_qconfig default_embedding_qat_qconfig default_per_channel_qconfig "
        "default_per_channel_symmetric_qnnpack_qat_qconfig default_per_channel_symmetric_qnnpack_qconfig "
        "default_qat_qconfig default_qat_qconfig_v2 default_qconfig default_quint8_weight_qconfig "
        "default_reuse_input_qconfig default_symmetric_qnnpack_qat_qconfig default_symmetric_qnnpack_qconfig "
        "default_weight_only_qconfig float16_dynamic_qconfig float16_static_qconfig float_qparams_weight_only_qconfig "
        "get_default_qat_qconfig get_default_qat_qconfig_dict get_default_qconfig get_default_qconfig_dict "
        "per_channel_dynamic_qconfig qconfig_equals"
    ),
    "ao.quantization.quant_type": "ao.quantization: QuantType",
    "ao.quantization.utils": (
        "ao._observing.utils: activation_dtype activation_is_dynamically_quantized activation_is_int32_quantized "
        "activation_is_int8_quantized activation_is_statically_quantized calculate_qmin_qmax check_min_max_valid "
        "get_combined_dict get_qconfig_dtypes get_qparam_dict get_quant_type get_swapped_custom_module_class "
        "getattr_from_fqn has_no_children_ignoring_parametrizations is_per_channel is_per_tensor "
        "op_is_int8_dynamically_quantized to_underlying_dtype validate_qmin_qmax weight_dtype weight_is_quantized "
        "weight_is_statically_quantized"
    ),
    "autograd.profiler_util": (
        "profiler._event: DeviceType FunctionEvent FunctionEventAvg Interval; profiler._events: EventList"
    ),
    "classes": "_absent.refused: load_library",
    "classes.torch": "",
    "cuda.comm": "nn.parallel.comm: broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    "cuda.random": (
        "cuda: get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all set_rng_state "
        "set_rng_state_all"
    ),
    "cuda.sparse": (
        "_tensor.legacy_types: BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor "
        "LongTensor ShortTensor"
    ),
    "cuda.streams": "cuda: Event Stream",
    "distributed._composable.fsdp": (
        "distributed.fsdp: CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard "
        "register_fsdp_forward_method"
    ),
    "distributed._tensor": (
        "distributed: DeviceMesh init_device_mesh; distributed.tensor: DTensor Partial Placement Replicate Shard "
        "distribute_module distribute_tensor empty full ones rand randn zeros"
    ),
    "distributed._tensor.experimental": "distributed.tensor.experimental: *",
    "distributed._tensor.placement_types": "distributed.tensor.placement_types: *",
    "distributed.checkpoint._consolidate_hf_safetensors": (
        "_absent.refused: consolidate_safetensors_files consolidate_safetensors_files_on_every_rank"
    ),
    "distributed.checkpoint.api": "distributed.checkpoint: CheckpointException",
    "distributed.elastic.agent.server.api": (
        "distributed.elastic.agent.server: ElasticAgent RunResult SimpleElasticAgent Worker WorkerGroup WorkerSpec "
        "WorkerState; distributed.elastic.agent.server._worker_group: DEFAULT_ROLE"
    ),
    "distributed.elastic.multiprocessing.api": (
        "distributed.elastic.multiprocessing: DefaultLogsSpecs LogsDest LogsSpecs MultiprocessContext PContext "
        "ProcessFailure RunProcsResult SignalException Std SubprocessContext to_map"
    ),
    "distributed.fsdp.api": (
        "distributed.fsdp: BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig "
        "LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision OptimStateDictConfig "
        "ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig StateDictSettings "
        "StateDictType"
    ),
    "distributed.fsdp.fully_sharded_data_parallel": (
        "distributed.fsdp: FullyShardedDataParallel; distributed.fsdp.api: *"
    ),
    "distributed.tensor.device_mesh": "distributed.tensor: DeviceMesh init_device_mesh",
    "distributed.tensor.experimental": (
        "distributed.tensor._context_parallel: context_parallel; distributed.tensor._local_map: local_map; "
        "distributed.tensor._plan: implicit_replication; distributed.tensor._register: register_sharding"
    ),
    "distributed.tensor.experimental._attention": (
        "distributed.tensor._context_parallel: _cp_options=options context_parallel context_parallel_unshard "
        "set_rotate_method"
    ),
    "distributed.tensor.parallel.loss": "distributed.tensor.parallel: loss_parallel",
    "distributed.tensor.placement_types": (
        "distributed.tensor: Partial Placement Replicate Shard; distributed.tensor._placements: _StridedShard"
    ),
    "distributed.utils": (
        "distributed._broadcast_coalesced: _sync_module_states=sync_module_states; distributed._structures: "
        "_apply_to_tensors=apply_to_tensors _p_assert=require _to_kwargs=moved_arguments; nn.utils.rnn: PackedSequence"
    ),
    "distributions.bernoulli": "distributions: Bernoulli",
    "distributions.beta": "distributions: Beta",
    "distributions.binomial": "distributions: Binomial",
    "distributions.categorical": "distributions: Categorical",
    "distributions.cauchy": "distributions: Cauchy",
    "distributions.chi2": "distributions: Chi2",
    "distributions.continuous_bernoulli": "distributions: ContinuousBernoulli",
    "distributions.dirichlet": "distributions: Dirichlet",
    "distributions.exponential": "distributions: Exponential",
    "distributions.fishersnedecor": "distributions: FisherSnedecor",
    "distributions.gamma": "distributions: Gamma",
    "distributions.generalized_pareto": "distributions: GeneralizedPareto",
    "distributions.geometric": "distributions: Geometric",
    "distributions.gumbel": "distributions: Gumbel",
    "distributions.half_cauchy": "distributions: HalfCauchy",
    "distributions.half_normal": "distributions: HalfNormal",
    "distributions.independent": "distributions: Independent",
    "distributions.inverse_gamma": "distributions: InverseGamma",
    "distributions.kumaraswamy": "distributions: Kumaraswamy",
    "distributions.laplace": "distributions: Laplace",
    "distributions.lkj_cholesky": "distributions: LKJCholesky",
    "distributions.log_normal": "distributions: LogNormal",
    "distributions.logistic_normal": "distributions: LogisticNormal",
    "distributions.lowrank_multivariate_normal": "distributions: LowRankMultivariateNormal",
    "distributions.mixture_same_family": "distributions: MixtureSameFamily",
    "distributions.multinomial": "distributions: Multinomial",
    "distributions.multivariate_normal": (
        "distributions: Distribution MultivariateNormal; distributions._normal_vectors: "
        "_precision_to_scale_tril=factor_of_precision"
    ),
    "distributions.negative_binomial": "distributions: NegativeBinomial",
    "distributions.normal": "distributions: Normal",
    "distributions.one_hot_categorical": "distributions: OneHotCategorical OneHotCategoricalStraightThrough",
    "distributions.pareto": "distributions: Pareto",
    "distributions.poisson": "distributions: Poisson",
    "distributions.relaxed_bernoulli": "distributions: RelaxedBernoulli; distributions._relaxed: LogitRelaxedBernoulli",
    "distributions.relaxed_categorical": (
        "distributions: RelaxedOneHotCategorical; distributions._relaxed: ExpRelaxedCategorical"
    ),
    "distributions.studentT": "distributions: StudentT",
    "distributions.transformed_distribution": "distributions: TransformedDistribution",
    "distributions.transforms": (
        "distributions: AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform "
        "CumulativeDistributionTransform ExpTransform IndependentTransform LowerCholeskyTransform "
        "PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform SoftmaxTransform SoftplusTransform "
        "StackTransform StickBreakingTransform TanhTransform Transform identity_transform; "
        "distributions._elementwise_transforms: _clipped_sigmoid=clipped_sigmoid; distributions._transform: "
        "_InverseTransform"
    ),
    "distributions.uniform": "distributions: Uniform",
    "distributions.von_mises": "distributions: VonMises",
    "distributions.weibull": "distributions: Weibull",
    "distributions.wishart": "distributions: Wishart",
    "export._trace": "_absent.denied: _is_export_for_training; export: _export=export",
    "export._unlift": "_absent.refused: _ok_to_generate_guards_fn _unlift_exported_program_lifted_states",
    "export.decomp_utils": "_absent.types: CustomDecompTable",
    "export.dynamic_shapes": "export: AdditionalInputs Dim ShapesCollection dims",
    "export.exported_program": (
        "_absent.refused: _convert_guards_to_code default_decompositions; _absent.types: ModuleCallEntry "
        "ModuleCallSignature; export: ExportedProgram"
    ),
    "export.graph_signature": (
        "_absent.types: ConstantArgument CustomObjArgument ExportBackwardSignature ExportGraphSignature InputKind "
        "InputSpec OutputKind OutputSpec SymIntArgument TensorArgument"
    ),
    "functional": (
        "weft: atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist "
        "chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft svd_lowrank tensordot unique "
        "unique_consecutive unravel_index"
    ),
    "functorch": (
        "func: functionalize grad grad_and_value hessian jacfwd jacrev jvp vjp vmap; func._functional_modules: "
        "FunctionalModule FunctionalModuleWithBuffers combine_state_for_ensemble make_functional "
        "make_functional_with_buffers"
    ),
    "functorch.compile": (
        "_dynamo._aot: aot_function aot_module aot_module_simplified make_boxed_compiler make_boxed_func nop "
        "print_compile"
    ),
    "jit._recursive": "jit._internal: concrete_type_store",
    "jit._shape_functions": "_prims_common: infer_size_impl",
    "mtia.memory": "mtia: *",
    "multiprocessing.reductions": "_absent.ignored: init_reductions; utils.weak: StorageWeakRef",
    "nested._internal": "",
    "nested._internal.nested_tensor": (
        "_absent.refused: ViewNestedFromBuffer jagged_from_list; _absent.types: _tensor_symint_registry; "
        "_checkpoint.torch_layouts: _rebuild_njt=rebuilt_jagged; _tensor.nested.tensor: NestedTensor"
    ),
    "nested._internal.ops": "_absent.refused: extract_kwargs",
    "nn._reduction": "nn._loss: get_enum=reduction_number legacy_get_string=legacy_reduction",
    "nn.intrinsic": "ao.nn.intrinsic.*",
    "nn.modules": "*",
    "nn.modules.activation": (
        "nn: CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
        "MultiheadAttention PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink "
        "Softsign Tanh Tanhshrink Threshold"
    ),
    "nn.modules.adaptive": "nn: AdaptiveLogSoftmaxWithLoss",
    "nn.modules.batchnorm": (
        "nn: BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm; "
        "nn._norm: _BatchNorm _NormBase"
    ),
    "nn.modules.channelshuffle": "nn: ChannelShuffle",
    "nn.modules.container": "nn: ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "nn.modules.conv": (
        "nn: Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d; nn._conv: _ConvNd "
        "_ConvTransposeNd=_ConvTranspose"
    ),
    "nn.modules.distance": "nn: CosineSimilarity PairwiseDistance",
    "nn.modules.dropout": (
        "nn: AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout; nn._dropout: _DropoutNd"
    ),
    "nn.modules.flatten": "nn: Flatten Unflatten",
    "nn.modules.fold": "nn: Fold Unfold",
    "nn.modules.instancenorm": (
        "nn: InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d; "
        "nn._norm: _InstanceNorm"
    ),
    "nn.modules.lazy": "nn._lazy_module: LazyModuleMixin",
    "nn.modules.linear": "nn: Bilinear Identity LazyLinear Linear; nn._attention: NonDynamicallyQuantizableLinear",
    "nn.modules.loss": (
        "nn: BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss "
        "HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MSELoss MarginRankingLoss MultiLabelMarginLoss "
        "MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss SoftMarginLoss "
        "TripletMarginLoss TripletMarginWithDistanceLoss; nn._loss: _Loss _WeightedLoss"
    ),
    "nn.modules.module": (
        "nn: Module; nn._hooks: _WrappedHook=WrappedHook _global_buffer_registration_hooks "
        "_global_module_registration_hooks _global_parameter_registration_hooks "
        "_has_any_global_hook=has_any_global_hook register_module_backward_hook "
        "register_module_buffer_registration_hook register_module_forward_hook register_module_forward_pre_hook "
        "register_module_full_backward_hook register_module_full_backward_pre_hook "
        "register_module_module_registration_hook register_module_parameter_registration_hook; nn._state_dict: "
        "_EXTRA_STATE_KEY_SUFFIX=EXTRA _IncompatibleKeys=IncompatibleKeys"
    ),
    "nn.modules.normalization": "nn: CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "nn.modules.padding": (
        "nn: CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d "
        "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d "
        "ZeroPad3d; nn._shape: _CircularPadNd _ConstantPadNd _ReflectionPadNd _ReplicationPadNd"
    ),
    "nn.modules.pixelshuffle": "nn: PixelShuffle PixelUnshuffle",
    "nn.modules.pooling": (
        "nn: AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d "
        "LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d; "
        "nn._pooling: _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _LPPoolNd _MaxPoolNd _MaxUnpoolNd=_MaxUnpool"
    ),
    "nn.modules.rnn": "nn: GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "nn.modules.sparse": "nn: Embedding EmbeddingBag",
    "nn.modules.transformer": (
        "nn: Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer; "
        "nn._transformer: _get_activation_fn"
    ),
    "nn.modules.upsampling": "nn: Upsample UpsamplingBilinear2d UpsamplingNearest2d",
    "nn.modules.utils": (
        "nn._sizes: _ntuple _pair _quadruple _reverse_repeat_tuple=reversed_and_repeated _single _triple "
        "consume_prefix_in_state_dict_if_present"
    ),
    "nn.parallel.distributed": (
        "distributed._ddp_log: _dump_DDP_relevant_env_vars; nn.parallel: DistributedDataParallel"
    ),
    "nn.parallel.parallel_apply": "nn.parallel: parallel_apply",
    "nn.parallel.replicate": "nn.parallel: replicate",
    "nn.parameter": (
        "nn: Buffer Parameter UninitializedBuffer UninitializedParameter; nn._lazy_parameter: UninitializedTensorMixin "
        "is_lazy; nn._parameter: _ParameterMeta"
    ),
    "nn.qat": "ao.nn.qat.*",
    "nn.quantizable": "ao.nn.quantizable.*",
    "nn.quantized": "ao.nn.quantized.*",
    "nn.utils._named_member_accessor": "nn.utils.stateless: set_tensor swap_tensor",
    "numa": "",
    "numa.binding": "distributed.elastic._numa: AffinityMode NumaOptions",
    "onnx._internal": "",
    "onnx._internal.exporter": "_absent.types: ExportOptions",
    "onnx.errors": (
        "_absent.errors: OnnxExporterWarning SymbolicValueError UnsupportedOperatorError; onnx: OnnxExporterError"
    ),
    "onnx.operators": "onnx._names: reshape_from_tensor_shape; weft: shape_as_tensor=_shape_as_tensor",
    "onnx.symbolic_opset10": "onnx.symbolic_opset9: *",
    "onnx.symbolic_opset11": "onnx.symbolic_opset9: *",
    "onnx.symbolic_opset12": "onnx.symbolic_opset9: *",
    "onnx.symbolic_opset13": "onnx.symbolic_opset9: *",
    "onnx.symbolic_opset14": "onnx.symbolic_opset9: *",
    "onnx.symbolic_opset9": (
        "_absent.refused: abs add arange argmax cat clamp div dropout expand flatten floor gelu gt index_select "
        "layer_norm log_softmax lt masked_fill matmul mean mul nonzero ones pow relu reshape scatter select sigmoid "
        "size slice softmax sqrt squeeze sub sum tanh transpose unsqueeze view where zeros"
    ),
    "onnx.utils": (
        "onnx: export register_custom_op_symbolic unregister_custom_op_symbolic; onnx._names: is_in_onnx_export"
    ),
    "optim.adamw": "optim: AdamW",
    "optim.optimizer": (
        "optim: Optimizer; optim._optimizer: ParamsT register_optimizer_step_post_hook "
        "register_optimizer_step_pre_hook required; optim._own: "
        "_default_to_fused_or_foreach=default_to_fused_or_foreach _get_capturable_supported_devices=capturable_devices "
        "_use_grad_for_differentiable=use_grad_for_differentiable"
    ),
    "package": (
        "_absent.denied: is_from_package; _absent.types: EmptyMatchError GlobGroup Importer ObjMismatchError "
        "ObjNotFoundError OrderedImporter PackageExporter PackageImporter PackagingError sys_importer"
    ),
    "package.importer": "_absent.types: Importer ObjMismatchError ObjNotFoundError OrderedImporter sys_importer",
    "package.package_exporter": "_absent.types: EmptyMatchError PackageExporter PackagingError",
    "package.package_importer": "_absent.types: PackageImporter",
    "quantization": "ao.quantization.*",
    "quantization._numeric_suite": "ao.ns._numeric_suite: *",
    "quantization._numeric_suite_fx": "ao.ns._numeric_suite_fx: *",
    "storage": (
        "_tensor.storage: TypedStorage UntypedStorage _StorageBase=UntypedStorage; serialization: _load_from_bytes"
    ),
    "utils._contextlib": (
        "_base.contexts: _DecoratorContextManager=DecoratorContextManager "
        "_NoParamDecoratorContextManager=NoParamDecoratorContextManager context_decorator"
    ),
    "utils._foreach_utils": (
        "optim._own: _device_has_foreach_support=has_foreach _foreach_supported_types=FOREACH_TYPES "
        "_get_foreach_kernels_supported_devices=capturable_devices "
        "_get_fused_kernels_supported_devices=capturable_devices "
        "_group_tensors_by_device_and_dtype=grouped_by_device_and_dtype _has_foreach_support=have_foreach"
    ),
    "utils._sympy": "",
    "utils._sympy.functions": (
        "_absent.types: CeilDiv CleanDiv FloorDiv Max Min Mod ModularIndexing PowByNatural PythonMod Where"
    ),
    "utils._sympy.numbers": "_absent.types: IntInfinity NegativeIntInfinity",
    "utils._sympy.value_ranges": "_absent.errors: ValueRangeError; _absent.types: ValueRanges",
    "utils._triton": (
        "_absent.denied: has_triton has_triton_experimental_host_tma has_triton_package "
        "has_triton_tensor_descriptor_host_tma has_triton_tma has_triton_tma_device"
    ),
    "utils.backend_registration": (
        "_absent.refused: generate_methods_for_privateuse1_backend rename_privateuse1_backend"
    ),
    "utils.benchmark.utils": "",
    "utils.benchmark.utils.common": "utils.benchmark: Measurement TaskSpec select_unit trim_sigfig unit_to_english",
    "utils.benchmark.utils.compare": "utils.benchmark: Colorize Compare",
    "utils.benchmark.utils.fuzzer": "utils.benchmark: FuzzedParameter FuzzedTensor Fuzzer ParameterAlias",
    "utils.benchmark.utils.timer": "utils.benchmark: Language Timer timer",
    "utils.data._utils.signal_handling": (
        "_absent.ignored: _remove_worker_pids _set_SIGCHLD_handler _set_worker_pids _set_worker_signal_handlers"
    ),
    "utils.data.datapipes": "",
    "utils.data.datapipes.datapipe": (
        "_absent.types: _IterDataPipeSerializationWrapper _MapDataPipeSerializationWrapper; utils.data: IterDataPipe "
        "MapDataPipe"
    ),
    "utils.data.datapipes.iter": (
        "utils.data._datapipes: Batcher=BatcherIterDataPipe Collator=CollatorIterDataPipe "
        "Concater=ConcaterIterDataPipe Filter=FilterIterDataPipe IterableWrapper=IterableWrapperIterDataPipe "
        "Mapper=MapperIterDataPipe ShardingFilter=ShardingFilterIterDataPipe Shuffler=ShufflerIterDataPipe "
        "UnBatcher=UnBatcherIterDataPipe Zipper=ZipperIterDataPipe"
    ),
    "utils.data.datapipes.iter.callable": "utils.data._datapipes: CollatorIterDataPipe MapperIterDataPipe",
    "utils.data.datapipes.iter.combinatorics": "utils.data._datapipes: ShufflerIterDataPipe",
    "utils.data.datapipes.iter.grouping": (
        "utils.data._datapipes: BatcherIterDataPipe ShardingFilterIterDataPipe UnBatcherIterDataPipe"
    ),
    "utils.data.datapipes.map": "utils.data._datapipes: SequenceWrapper=SequenceWrapperMapDataPipe",
    "utils.data.graph_settings": (
        "_absent.refused: apply_random_seed; utils.data._datapipes: apply_sharding apply_shuffle_settings "
        "get_all_graph_pipes"
    ),
    "utils.dlpack": "_tensor.dlpack: DLDeviceType from_dlpack to_dlpack",
    "utils.model_zoo": "hub: load_url=load_state_dict_from_url tqdm",
    "xla.core.xla_model": (
        "xla._arena: ToXlaTensorArena; xla._buckets: CoalescingBuckets; xla._collectives: REDUCE_AND REDUCE_MAX "
        "REDUCE_MIN REDUCE_MUL REDUCE_OR REDUCE_SUM _all_gather_using_all_reduce all_gather all_gather_bucketized "
        "all_reduce all_to_all collective_broadcast collective_permute reduce_scatter reduce_scatter_bucketized; "
        "xla._context: DeviceContext _DEVICE_CONTEXTS _DEVICE_CONTEXTS_LOCK _get_all_reduce_token _get_device_context "
        "set_replication xla_replication_devices; xla._devices: _DEVICES _xla_real_device get_xla_supported_devices "
        "is_xla_tensor parse_xla_device xla_device xla_device_hw xla_real_devices; xla._gradients: _fetch_gradients "
        "all_reduce_bucketized_gradients broadcast_master_param optimizer_step reduce_gradients; xla._graphs: "
        "get_stablehlo get_stablehlo_bytecode optimization_barrier_; xla._library: XLA_LIB; xla._memory: MemoryInfo "
        "get_memory_info unlazy wait_device_ops; xla._messages: recv send; xla._ordinals: get_local_ordinal "
        "get_ordinal is_master_ordinal master_print xrt_world_size; xla._random: fork_rng get_rng_state set_rng_state; "
        "xla._rate: RateTracker; xla._rendezvous: do_on_ordinals mesh_reduce rendezvous xla_rendezvous; xla._saving: "
        "_maybe_convert_to_cpu load save send_cpu_data_to_device; xla._steps: _run_step_closures add_step_closure "
        "mark_step; xla._views: check_view_sharing"
    ),
    "xla.debug.metrics": (
        "xla._metrics: clear_all clear_counters clear_metrics counter_names counter_value executed_fallback_ops "
        "metric_data metric_names metrics_report short_metrics_report"
    ),
    "xla.distributed.parallel_loader": "xla._loader: MpDeviceLoader ParallelLoader PerDeviceLoader",
    "xla.distributed.spmd": (
        "xla._mesh: HybridMesh Mesh get_1d_mesh get_global_mesh set_global_mesh; xla._sharding: ShardingSpec "
        "clear_sharding mark_sharding"
    ),
    "xla.distributed.spmd.xla_sharding": "xla.distributed.spmd: *",
    "xla.utils.serialization": "xla._saving: load save",
    "xpu.memory": "xpu: *",
    "xpu.random": "xpu: *",
    "xpu.streams": "xpu: Event Stream",
}
