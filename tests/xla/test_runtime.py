"""How many devices and replicas there are, in a program without replicas."""

from __future__ import annotations

import jax
import pytest

import weft as torch
import weft.xla.runtime as xr


def test_one_replica_is_all_there_is():
    assert xr.world_size() == xr.process_count() == xr.local_process_count() == 1
    assert xr.global_ordinal() == xr.local_ordinal() == xr.process_index() == xr.get_local_process_index() == 0
    assert xr.host_index() == 0
    assert xr.get_master_ip() == "localhost"
    assert xr.xla_device() == xr.xla_device(0) == torch.device("xla:0")


def test_the_devices_of_the_process():
    devices = jax.local_devices()
    for count in (
        xr.local_device_count,
        xr.addressable_device_count,
        xr.global_device_count,
        xr.addressable_runtime_device_count,
        xr.global_runtime_device_count,
    ):
        assert count() == len(devices)
    attributes = xr.local_device_attributes()
    assert attributes == xr.global_runtime_device_attributes()
    assert attributes[0] == {"name": f"CPU:{devices[0].id}", "kind": devices[0].device_kind, "process": 0}
    assert xr.runtime_device_attributes("CPU:0") == attributes[0]
    with pytest.raises(
        RuntimeError, match=r"^runtime_device_attributes: there is no device 'TPU:0'; there are \['CPU:0"
    ):
        xr.runtime_device_attributes("TPU:0")


def test_the_kind_of_devices(monkeypatch):
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    assert xr.device_type() == "CPU"
    assert xr.using_pjrt()
    assert xr.is_bf16_supported()
    assert xr.bfloat16 is torch.bfloat16
    monkeypatch.setenv("PJRT_DEVICE", "TPU_C_API")
    assert xr.device_type() == "TPU"
    xr.set_device_type("CPU")
    assert xr.device_type() == "CPU"


def test_tensors_over_all_devices(monkeypatch):
    monkeypatch.delenv("XLA_USE_SPMD", raising=False)
    assert not xr.is_spmd()
    with pytest.warns(UserWarning, match=r"^use_spmd: auto-sharding is XLA's on TPUs only; programs are sharded as"):
        xr.use_spmd(auto=True)
    assert xr.is_spmd()
    monkeypatch.setenv("XLA_USE_SPMD", "0")
    assert not xr.is_spmd()


def test_the_folder_of_compiled_programs(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        xr.initialize_cache(str(tmp_path))
        assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
