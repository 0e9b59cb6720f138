"""CUDA devices, on machines with and without them."""

from __future__ import annotations

import pytest

import weft
from weft import cuda
from weft._base.device import canonical, set_current_index

without = pytest.mark.skipif(cuda.is_available(), reason="this machine has such a device")
needs_cuda = pytest.mark.skipif(not cuda.is_available(), reason="this machine has no such device")


@without
@pytest.mark.parametrize(
    "call",
    [
        lambda: cuda.set_device(0),
        lambda: cuda.set_device("cuda:0"),
        lambda: cuda.current_device(),
        lambda: cuda.synchronize(),
        lambda: cuda.get_device_name(),
        lambda: cuda.device(0).__enter__(),
        lambda: cuda.init(),
        lambda: cuda.current_stream(),
        lambda: cuda.mem_get_info(),
        lambda: cuda.get_device_properties(0),
        lambda: cuda.get_device_capability(),
    ],
)
def test_without_devices_calls_say_so(call):
    with pytest.raises(RuntimeError, match=r"cuda:0: this machine has no cuda device that jax can use$"):
        call()


@without
def test_without_devices_the_rest_does_nothing():
    cuda.set_device(-1)
    cuda.empty_cache()
    with cuda.device(-1):
        pass
    with cuda.stream(None), cuda.device_of(weft.zeros(1)):
        pass
    cuda.ipc_collect()
    cuda.reset_peak_memory_stats()
    assert (cuda.memory_allocated(), cuda.max_memory_allocated(), cuda.is_bf16_supported()) == (0, 0, False)
    assert (cuda.memory_stats(), cuda.memory_reserved(), cuda.memory_summary(), cuda.get_arch_list()) == ({}, 0, "", [])
    assert not cuda.is_current_stream_capturing()


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("cpu", "Expected a cuda device, but got: cpu"),
        (weft.device("cpu"), "Expected a cuda device, but got: cpu"),
        ("cuda", "Expected a torch.device with a specified index or an integer, but got:cuda"),
        (None, "Expected a torch.device with a specified index or an integer, but got:None"),
    ],
)
def test_other_devices_are_refused(device, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        cuda.set_device(device)


def test_all_devices_draw_the_same():
    cuda.manual_seed_all(3)
    first = weft.rand(2).tolist()
    cuda.manual_seed(3)
    assert weft.rand(2).tolist() == first


def test_what_there_is_not_is_told():
    assert not hasattr(cuda, "MemPool")
    with pytest.raises(AttributeError, match=r"'MemPool': graphs, captures and allocators are XLA's own affair"):
        _ = cuda.MemPool  # pyright: ignore


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (cuda.CUDAGraph, "CUDAGraph: XLA captures the programs that it compiles by itself"),
        (lambda: cuda.graph(None), "graph: XLA captures"),
        (cuda.utilization, "cuda.utilization: jax does not tell it"),
        (cuda.cudart, "cuda.cudart: XLA calls CUDA's runtime by itself"),
        (cuda.nccl.version, "cuda.nccl.version: XLA calls NCCL by itself"),
    ],
)
def test_what_is_xlas_is_refused(call, text):
    with pytest.raises(NotImplementedError, match=f"^{text}"):
        call()


def test_memory_is_xlas_to_decide():
    with pytest.raises(RuntimeError, match=r"set XLA_PYTHON_CLIENT_MEM_FRACTION=0\.5 in the environment"):
        cuda.set_per_process_memory_fraction(0.5)
    function = weft.nn.Linear(2, 2)
    assert cuda.make_graphed_callables(function, (weft.ones(1, 2),)) is function


def test_older_classes_tell_devices_apart():
    x = weft.ones(2)
    assert isinstance(x, weft.FloatTensor)
    assert not isinstance(x, (cuda.FloatTensor, weft.DoubleTensor))


@without
def test_older_classes_need_the_device():
    with pytest.raises(RuntimeError, match="this machine has no cuda device that jax can use"):
        cuda.FloatTensor(2)


def test_ranges_nest():
    assert [cuda.nvtx.range_push("outer"), cuda.nvtx.range_push("inner")] == [0, 1]
    assert [cuda.nvtx.range_pop(), cuda.nvtx.range_pop(), cuda.nvtx.range_pop()] == [1, 0, -1]

    @cuda.nvtx.range("step {}", 3)
    def step(x):
        cuda.nvtx.mark("within")
        return x + 1

    assert step(1) == 2
    cuda.nvtx.range_end(cuda.nvtx.range_start("from here to there"))


def test_copies_between_devices():
    x = weft.arange(6.0)
    assert [part.tolist() for part in cuda.comm.scatter(x, ["cpu", "cpu"])] == [[0, 1, 2], [3, 4, 5]]
    parts = cuda.comm.scatter(x, ["cpu", "cpu"], chunk_sizes=[4, 2])
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5]]
    assert cuda.comm.gather(parts, destination="cpu").tolist() == x.tolist()
    assert cuda.comm.reduce_add([x, x, x]).tolist() == (3 * x).tolist()
    assert [t.tolist() for t in cuda.comm.reduce_add_coalesced([[x, x], [x, 2 * x]])] == [
        (2 * x).tolist(),
        (3 * x).tolist(),
    ]
    out = [weft.zeros(6), weft.zeros(6)]
    assert all(a is b for a, b in zip(cuda.comm.broadcast(x, out=out), out, strict=True))
    assert out[1].tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
        cuda.comm.broadcast(x)
    with pytest.raises(RuntimeError, match=r"input 1 has invalid size: got \(2,\), but expected \(6,\)"):
        cuda.comm.reduce_add([x, x[:2]])


def test_too_large_results_say_so():
    x = weft.ones(1 << 24, 1) * weft.ones(1, 1 << 24)  # 1 PiB, more than addresses reach
    with pytest.raises(
        weft.OutOfMemoryError, match=r"^CPU out of memory\. DefaultCPUAllocator: can't allocate memory: "
    ):
        x[0, 0].item()
    with pytest.raises(cuda.OutOfMemoryError):  # which is the same class
        x.sum().item()


@needs_cuda
def test_a_device_is_current():
    cuda.set_device(0)
    with cuda.device("cuda:0"):
        x = weft.ones(3, device="cuda") * 2
        cuda.synchronize()
    assert (cuda.current_device(), x.device) == (0, weft.device("cuda", 0))
    assert cuda.memory_allocated() > 0
    assert cuda.get_device_name() == cuda.get_device_properties(0).name
    assert cuda.get_device_capability() >= (1, 0)
    assert cuda.memory_stats()["allocated_bytes.all.current"] == cuda.memory_allocated()


def test_the_kind_alone_means_the_current_device():
    set_current_index("cuda", 2)
    try:
        assert [str(canonical(name)) for name in ("cuda", "cuda:1", "tpu")] == ["cuda:2", "cuda:1", "tpu:0"]
    finally:
        set_current_index("cuda", 0)
