"""The module of each public name of the package, and its import on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

MODULES = frozenset({
    "accelerator", "amp", "autograd", "backends", "compiler", "cpu", "cuda", "distributed", "distributions",
    "ao", "errors", "export", "fft", "func", "futures", "fx", "hub", "jit", "library", "linalg",
    "masked", "monitor", "mps", "mtia", "multiprocessing", "nested", "nn", "onnx", "ops", "optim", "overrides",
    "owners", "profiler", "quasirandom", "random", "return_types", "serialization", "signal", "sparse",
    "special", "testing", "torch_version", "types", "utils", "version", "xla", "xpu",
})  # fmt: skip
MODULES |= {"__config__", "__future__", "_prims_common", "_utils"}  # PyTorch's programs call them so

_STANDARD = frozenset({
    "builtins", "ctypes", "functools", "glob", "importlib", "inspect", "math", "os", "platform", "sys", "textwrap",
    "threading", "warnings",
})  # fmt: skip
"""Modules of Python's that programs reach as `torch.math`, since PyTorch's own `__init__` imports them."""

_NAMES = {
    "weft._base.dtype": (
        "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float8_e4m3fn",
        "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float16", "bfloat16", "float32",
        "float64", "complex64", "complex128", "quint8", "qint8", "qint32", "quint4x2", "quint2x4", "complex32",
        "float4_e2m1fn_x2", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)),
        "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16",
    ),
    "weft._base.limits": ("finfo", "iinfo"),
    "weft._base.state": ("set_default_dtype",),
    "weft._base.device": ("device", "set_default_device"),
    "weft._base.size": ("Size",),
    "weft.errors": ("OutOfMemoryError",), "weft.futures": ("Future",),
    "weft._tensor.tensor": ("Tensor",),
    "weft._tensor.legacy_types": (
        "BoolTensor", "ByteTensor", "CharTensor", "ShortTensor", "IntTensor", "LongTensor", "HalfTensor",
        "BFloat16Tensor", "FloatTensor", "DoubleTensor",
    ),
    "weft._tensor.storage": (
        "UntypedStorage", "TypedStorage", "BoolStorage", "ByteStorage", "CharStorage", "ShortStorage", "IntStorage",
        "LongStorage", "HalfStorage", "BFloat16Storage", "FloatStorage", "DoubleStorage", "ComplexFloatStorage",
        "ComplexDoubleStorage",
    ),
    "weft._tensor.display": ("set_printoptions", "get_printoptions", "printoptions"),
    "weft._tensor.generator": ("Generator", "default_generator"),
    "weft._tensor.convert": ("tensor", "as_tensor", "scalar_tensor"),
    "weft._tensor.dlpack": ("from_dlpack", "to_dlpack"),
    "weft._tensor.protocols": ("asarray", "from_file", "frombuffer"),
    "weft._devices.streams": ("Event", "Stream"),
    "weft.autograd": (
        "no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "is_grad_enabled", "is_inference_mode_enabled",
    ),
    "weft.amp.grad_scaler": ("GradScaler",),
    "weft.amp.autocast_mode": (
        "autocast", "is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype",
        "is_autocast_cache_enabled", "set_autocast_cache_enabled", "clear_autocast_cache", "autocast_increment_nesting",
        "autocast_decrement_nesting", "is_autocast_cpu_enabled", "set_autocast_cpu_enabled", "is_autocast_xla_enabled",
        "set_autocast_xla_enabled", "get_autocast_cpu_dtype", "set_autocast_cpu_dtype", "get_autocast_gpu_dtype",
        "set_autocast_gpu_dtype", "get_autocast_xla_dtype", "set_autocast_xla_dtype",
    ),
    "weft._interop.control": ("cond", "while_loop"),
    "weft._interop.from_jax": ("from_jax",),
    "weft._interop.operators": ("Tag",),
    "weft._interop.to_jax": ("to_jax",),
    "weft.func._vmap": ("vmap",),
    "weft.serialization": ("save", "load"),
    "weft._base.torch_alias": ("as_torch",),
    "weft._base.layout": (
        "layout", "memory_format", "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc",
        "jagged", "contiguous_format", "preserve_format", "channels_last", "channels_last_3d", "qscheme",
        "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
        "per_channel_affine_float_qparams",
    ),
    "weft._switches": (
        "get_num_threads", "set_num_threads", "get_num_interop_threads", "set_num_interop_threads",
        "use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
        "is_deterministic_algorithms_warn_only_enabled", "get_deterministic_debug_mode", "set_deterministic_debug_mode",
        "set_float32_matmul_precision", "get_float32_matmul_precision", "set_flush_denormal",
        "set_default_tensor_type", "is_anomaly_enabled", "is_anomaly_check_nan_enabled", "set_anomaly_enabled",
        "get_device_module", "set_warn_always", "is_warn_always_enabled",
    ),
    "weft._assertions": (
        "_check", "_check_index", "_check_value", "_check_type", "_check_not_implemented", "_check_tensor_all",
        "_check_with", "_check_is_size", "_check_tensor_all_with",
        "_assert", "_assert_async",
    ),
    "weft.jit._fork": ("fork", "wait"),
    "weft.jit._script": ("ScriptFunction", "ScriptModule"),
    "weft._utils": ("classproperty",),
    "weft._checkpoint.records": ("PyTorchFileReader", "PyTorchFileWriter"),
    "weft._extension": ("DisableTorchFunction", "DisableTorchFunctionSubclass", "DispatchKey",
                        "DispatchKeySet", "_has_compatible_shallow_copy_type"),
    "weft._absent.denied": ("is_vulkan_available",),
    "weft._absent.types": (
        "AnyType", "BoolType", "ClassType", "CompilationUnit", "ComplexType", "DeviceObjType", "DictType", "EnumType",
        "FloatType", "FunctionSchema", "FutureType", "Graph", "InferredType", "IntType", "InterfaceType", "ListType",
        "LiteScriptModule", "Node", "NoneType", "NumberType", "OptionalType", "PyObjectType", "RRefType",
        "ScriptMethod", "ScriptObject", "StreamObjType", "StringType", "TensorType", "ThroughputBenchmark", "TupleType",
        "Type", "UnionType", "Value",
    ),
    "weft._absent.errors": ("ErrorReport", "FatalError", "JITException"),
    "weft._absent.ignored": ("_disable_functionalization", "_enable_functionalization", "set_vital"),
    "weft._absent.refused": (
        "_nested_compute_contiguous_strides_offsets", "_nested_view_from_buffer", "_scaled_mm_v2", "import_ir_module",
        "parse_ir", "parse_schema",
    ),
    "weft._symbols": (
        "SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt",
        "sym_sum",
    ),
    "weft.random": (
        "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "thread_safe_generator",
    ),
}  # fmt: skip
_RENAMED = {
    **{name: ("math", name) for name in ("pi", "inf", "nan", "e")}, "newaxis": ("weft._base.size", "NEW_AXIS"),
    "dtype": ("weft._base.dtype", "DType"), "bool": ("weft._base.dtype", "bool_"),
    "legacy_contiguous_format": ("weft._base.layout", "contiguous_format"),
    "StorageBase": ("weft._tensor.storage", "UntypedStorage"),
    "AcceleratorError": ("weft.errors", "DeviceError"), "get_default_dtype": ("weft._base.state", "default_dtype"),
    "from_numpy": ("weft._tensor.convert", "tensor_over"),
    "_disable_dynamo": ("weft.compiler", "_disable_dynamo"),
    "explain": ("weft._lazy.explain", "explain"), "compile": ("weft._tensor.compile", "compile"),
}  # fmt: skip
_ALIASED_DTYPES = {"short": "int16", "int": "int32", "long": "int64", "half": "float16", "float": "float32",
                   "double": "float64", "cfloat": "complex64", "cdouble": "complex128",
                   "chalf": "complex32", "bit": "uint1"}  # fmt: skip

LOCATIONS: dict[str, tuple[str, str]] = {
    **{name: (module, name) for module, members in _NAMES.items() for name in members},
    **_RENAMED,
    **{alias: ("weft._base.dtype", name) for alias, name in _ALIASED_DTYPES.items()},
}


def load(name: str) -> Any:
    """The public object with this name; `AttributeError` if there is none."""
    if name in MODULES:
        return import_module(f"weft.{name}")
    if name in _STANDARD:
        return import_module(name)
    if name == "__all__":
        return [name for name in names() if not name.startswith("_")]
    if name.startswith("__"):
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    public = _functions()
    if name in LOCATIONS:
        module, attribute = LOCATIONS[name]
        return getattr(import_module(module), attribute)
    if name in public:
        return public[name]
    raise import_module("weft._base.exports").missing("weft", name, names)


def _functions() -> dict[str, Any]:
    import_module("weft._lazy.runtime")
    return import_module("weft._tensor.assemble").PUBLIC[""]


def names() -> list[str]:
    """Every public name."""
    return sorted({*MODULES, *LOCATIONS, *_functions()})
