"""`torch_xla` with `weft` for its first word: the modules of `weft.xla`, under the paths that programs import."""

import sys
from importlib import import_module

from weft.xla import __version__ as __version__
from weft.xla import compile as compile
from weft.xla import device as device
from weft.xla import device_count as device_count
from weft.xla import devices as devices
from weft.xla import launch as launch
from weft.xla import manual_seed as manual_seed
from weft.xla import real_devices as real_devices
from weft.xla import save_as_stablehlo as save_as_stablehlo
from weft.xla import save_torch_model_as_stablehlo as save_torch_model_as_stablehlo
from weft.xla import step as step
from weft.xla import sync as sync

_MODULES = (
    "_internal",
    "_internal.tpu",
    "amp",
    "amp.syncfree",
    "core",
    "core.functions",
    "core.xla_env_vars",
    "core.xla_model",
    "debug",
    "debug.metrics",
    "debug.profiler",
    "distributed",
    "distributed.parallel_loader",
    "distributed.spmd",
    "distributed.spmd.xla_sharding",
    "distributed.xla_backend",
    "distributed.xla_multiprocessing",
    "runtime",
    "stablehlo",
    "test",
    "test.test_utils",
    "utils",
    "utils.checkpoint",
    "utils.serialization",
    "utils.utils",
)

for _name in _MODULES:
    _module = import_module(f"weft.xla.{_name}")
    sys.modules[f"{__name__}.{_name}"] = _module
    if "." not in _name:
        globals()[_name] = _module
