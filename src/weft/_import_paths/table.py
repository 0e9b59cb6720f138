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
        "func._wrapped: _are_functorch_transforms_active=are_transforms_active; "
        "_base.usage: _log_api_usage_once=log_api_usage_once; _extension: DisableTorchFunction "
        "DisableTorchFunctionSubclass DispatchKey DispatchKeySet PyTorchFileReader _EnableTorchFunction "
        "_ExcludeDispatchKeyGuard _TensorMeta _VariableFunctionsClass _get_accelerator _get_function_stack_at "
        "_get_tracing_state _is_torch_function_all_disabled _is_torch_function_enabled _is_torch_function_mode_enabled "
        "_len_torch_function_stack _pop_torch_function_stack _push_on_torch_function_stack; _tensor.base: "
        "TensorBase _TensorBase=TensorBase; _tensor.generator: Generator; _tensor.overriding: "
        "_disabled_torch_function_impl=disabled"
    ),
    "_C._functorch": (
        "func._wrapped: _add_batch_dim=add_batch_dim _remove_batch_dim=remove_batch_dim get_unwrapped is_batchedtensor "
        "is_functionaltensor is_functorch_wrapped_tensor is_gradtrackingtensor is_legacy_batchedtensor"
    ),
    "_C._nn": "_extension: _parse_to; nn.functional: *",
    "_C._profiler": "profiler._callbacks: RecordScope; profiler: ProfilerActivity _ExperimentalConfig",
    "_custom_ops": "library: custom_op",
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
        "func: vmap; func._wrapped: _add_batch_dim=add_batch_dim _get_name=name_of_function "
        "_maybe_remove_batch_dim=maybe_remove_batch_dim _remove_batch_dim=remove_batch_dim is_batchedtensor; "
        "utils._pytree: _broadcast_to_and_flatten tree_flatten tree_unflatten; _tensor.tensor: Tensor"
    ),
    "_higher_order_ops": "_interop.control: cond while_loop; func._scans: associative_scan map scan",
    "_higher_order_ops.associative_scan": "func._scans: associative_scan",
    "_higher_order_ops.cond": "_interop.control: cond",
    "_higher_order_ops.map": "func._scans: map",
    "_higher_order_ops.scan": "func._scans: scan",
    "_higher_order_ops.while_loop": "_interop.control: while_loop",
    "_inductor.compile_fx": "_dynamo._backends: compile_fx=by_xla",
    "_logging": "_base.logs: set_logs",
    "ao.quantization.fake_quantize": (
        "ao.quantization: FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize "
        "default_affine_fixed_qparams_fake_quant default_dynamic_fake_quant default_embedding_fake_quant "
        "default_fake_quant default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_neg1to1_fake_quant "
        "default_fused_act_fake_quant default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant "
        "default_histogram_fake_quant default_per_channel_weight_fake_quant default_symmetric_fixed_qparams_fake_quant "
        "default_weight_fake_quant disable_fake_quant disable_observer enable_fake_quant enable_observer "
        "fused_per_channel_wt_fake_quant_range_neg_127_to_127 fused_wt_fake_quant_range_neg_127_to_127"
    ),
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
    "cuda.comm": "nn.parallel.comm: broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    "cuda.random": (
        "cuda: get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all set_rng_state "
        "set_rng_state_all"
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
    "distributed._tensor.placement_types": "distributed.tensor.placement_types: *",
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
    "distributions.multivariate_normal": "distributions: MultivariateNormal",
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
        "StackTransform StickBreakingTransform TanhTransform Transform identity_transform; distributions._transform: "
        "_InverseTransform"
    ),
    "distributions.uniform": "distributions: Uniform",
    "distributions.von_mises": "distributions: VonMises",
    "distributions.weibull": "distributions: Weibull",
    "distributions.wishart": "distributions: Wishart",
    "export.dynamic_shapes": "export: AdditionalInputs Dim ShapesCollection dims",
    "export.exported_program": "export: ExportedProgram",
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
    "mtia.memory": "mtia: *",
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
    "nn.modules.dropout": "nn: AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
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
        "TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "nn.modules.module": (
        "nn: Module; nn._hooks: _WrappedHook=WrappedHook _has_any_global_hook=has_any_global_hook "
        "register_module_backward_hook register_module_buffer_registration_hook register_module_forward_hook "
        "register_module_forward_pre_hook "
        "register_module_full_backward_hook register_module_full_backward_pre_hook "
        "register_module_module_registration_hook register_module_parameter_registration_hook; nn._state_dict: "
        "_EXTRA_STATE_KEY_SUFFIX=EXTRA _IncompatibleKeys=IncompatibleKeys"
    ),
    "nn.modules.normalization": "nn: CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "nn.modules.padding": (
        "nn: CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d "
        "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d "
        "ZeroPad3d"
    ),
    "nn.modules.pixelshuffle": "nn: PixelShuffle PixelUnshuffle",
    "nn.modules.pooling": (
        "nn: AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d "
        "LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
    "nn.modules.rnn": "nn: GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "nn.modules.sparse": "nn: Embedding EmbeddingBag",
    "nn.modules.transformer": (
        "nn: Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer; "
        "nn._transformer: _get_activation_fn"
    ),
    "nn.modules.upsampling": "nn: Upsample UpsamplingBilinear2d UpsamplingNearest2d",
    "nn.modules.utils": "nn._sizes: _ntuple _pair _quadruple _single _triple consume_prefix_in_state_dict_if_present",
    "nn.parallel.distributed": (
        "distributed._ddp_log: _dump_DDP_relevant_env_vars; nn.parallel: DistributedDataParallel"
    ),
    "nn.parallel.parallel_apply": "nn.parallel: parallel_apply",
    "nn.parallel.replicate": "nn.parallel: replicate",
    "nn.parameter": (
        "nn: Buffer Parameter UninitializedBuffer UninitializedParameter; nn._lazy_parameter: UninitializedTensorMixin "
        "is_lazy"
    ),
    "nn.qat": "ao.nn.qat.*",
    "nn.quantizable": "ao.nn.quantizable.*",
    "nn.quantized": "ao.nn.quantized.*",
    "onnx.symbolic_opset11": "",
    "optim.adamw": "optim: AdamW",
    "optim.optimizer": (
        "optim: Optimizer; optim._optimizer: ParamsT register_optimizer_step_post_hook "
        "register_optimizer_step_pre_hook required"
    ),
    "quantization": "ao.quantization.*",
    "quantization._numeric_suite": "ao.ns._numeric_suite: *",
    "quantization._numeric_suite_fx": "ao.ns._numeric_suite_fx: *",
    "storage": "_tensor.storage: TypedStorage UntypedStorage",
    "utils.benchmark.utils": "",
    "utils.benchmark.utils.common": "utils.benchmark: Measurement TaskSpec select_unit trim_sigfig unit_to_english",
    "utils.benchmark.utils.compare": "utils.benchmark: Colorize Compare",
    "utils.benchmark.utils.fuzzer": "utils.benchmark: FuzzedParameter FuzzedTensor Fuzzer ParameterAlias",
    "utils.benchmark.utils.timer": "utils.benchmark: Language Timer timer",
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
