"""`torch_xla.core.xla_env_vars`: the names of environment variables, of those that mean something here."""

from __future__ import annotations

PJRT_DEVICE = "PJRT_DEVICE"
CPU_NUM_DEVICES = "CPU_NUM_DEVICES"
RANK = "RANK"
WORLD_SIZE = "WORLD_SIZE"
LOCAL_RANK = "LOCAL_RANK"
LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
