"""The device interface of PyTorch/XLA, usually imported as `xm`. Each name is explained where it is defined."""

from __future__ import annotations

from weft.xla._arena import ToXlaTensorArena as ToXlaTensorArena
from weft.xla._buckets import CoalescingBuckets as CoalescingBuckets
from weft.xla._context import DeviceContext as DeviceContext
from weft.xla._context import _get_device_context as _get_device_context
from weft.xla._context import set_replication as set_replication
from weft.xla._context import xla_replication_devices as xla_replication_devices
from weft.xla._devices import _xla_real_device as _xla_real_device
from weft.xla._devices import get_xla_supported_devices as get_xla_supported_devices
from weft.xla._devices import is_xla_tensor as is_xla_tensor
from weft.xla._devices import parse_xla_device as parse_xla_device
from weft.xla._devices import xla_device as xla_device
from weft.xla._devices import xla_device_hw as xla_device_hw
from weft.xla._devices import xla_real_devices as xla_real_devices
from weft.xla._graphs import get_stablehlo as get_stablehlo
from weft.xla._graphs import get_stablehlo_bytecode as get_stablehlo_bytecode
from weft.xla._graphs import optimization_barrier_ as optimization_barrier_
from weft.xla._memory import MemoryInfo as MemoryInfo
from weft.xla._memory import get_memory_info as get_memory_info
from weft.xla._memory import unlazy as unlazy
from weft.xla._memory import wait_device_ops as wait_device_ops
from weft.xla._ordinals import get_local_ordinal as get_local_ordinal
from weft.xla._ordinals import get_ordinal as get_ordinal
from weft.xla._ordinals import is_master_ordinal as is_master_ordinal
from weft.xla._ordinals import master_print as master_print
from weft.xla._ordinals import xrt_world_size as xrt_world_size
from weft.xla._random import fork_rng as fork_rng
from weft.xla._random import get_rng_state as get_rng_state
from weft.xla._random import set_rng_state as set_rng_state
from weft.xla._rate import RateTracker as RateTracker
from weft.xla._rendezvous import do_on_ordinals as do_on_ordinals
from weft.xla._rendezvous import mesh_reduce as mesh_reduce
from weft.xla._rendezvous import rendezvous as rendezvous
from weft.xla._rendezvous import xla_rendezvous as xla_rendezvous
from weft.xla._saving import _maybe_convert_to_cpu as _maybe_convert_to_cpu
from weft.xla._saving import load as load
from weft.xla._saving import save as save
from weft.xla._saving import send_cpu_data_to_device as send_cpu_data_to_device
from weft.xla._steps import _run_step_closures as _run_step_closures
from weft.xla._steps import add_step_closure as add_step_closure
from weft.xla._steps import mark_step as mark_step
from weft.xla._views import check_view_sharing as check_view_sharing
