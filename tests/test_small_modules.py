"""Small modules that programs import."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft as torch
from weft import __config__, __future__, nn, return_types, types
from weft.errors import WeftError


def test_types_for_annotations():
    assert isinstance(3, types.Number)
    assert isinstance("cpu", types.Device)
    assert not isinstance(3, types.SymInt)
    assert types.Storage is torch.UntypedStorage
    assert (types._int, types._dtype, types._layout) == (int, torch.dtype, torch.layout)


def test_numbers_of_the_compiler_are_pythons():
    assert (torch.sym_int(2.7), torch.sym_float(2), torch.sym_not(0)) == (2, 2.0, True)
    assert (torch.sym_max(1, 2.0), type(torch.sym_max(3, 2.0)), torch.sym_min(1, 2)) == (2.0, float, 1)
    assert (torch.sym_ite(True, 1, 2), torch.sym_sum([1, 2, 3]), torch.sym_sqrt(4)) == (1, 6, 2.0)
    assert not isinstance(torch.ones(3).shape[0], torch.SymInt)


def test_types_of_results_are_those_of_the_table():
    largest = torch.tensor([[1.0, 3.0]]).max(1)
    assert isinstance(largest, return_types.max)
    assert isinstance(torch.linalg.svd(torch.eye(2)), return_types.linalg_svd)
    assert isinstance(torch.svd(torch.eye(2)), return_types.svd)
    assert {"sort", "topk", "linalg_qr", "qr", "histogram"} <= set(dir(return_types))
    assert pickle.loads(pickle.dumps(largest)).indices.item() == 1
    assert isinstance(torch.linalg.slogdet(torch.eye(2)), return_types.linalg_slogdet)
    assert return_types.max in return_types.all_return_types
    one, two = torch.tensor(1), torch.tensor(2)
    for made in (return_types.max((one, two)), return_types.max((one, two), {}), return_types.max(one, two)):
        assert (made.values is one, made.indices is two, type(copy.copy(made))) == (True, True, return_types.max)
    with pytest.raises(TypeError, match=r"return_types.max\(\) takes a 2-sequence \(1-sequence given\)"):
        return_types.max((one,))
    lazy = nn.UninitializedParameter()
    assert type(copy.copy(lazy)) is type(copy.deepcopy(lazy)) is nn.UninitializedParameter
    with pytest.raises(AttributeError, match=r"^module 'weft.return_types' has no attribute 'add'; there are aminmax"):
        return_types.add  # pyright: ignore


def test_what_is_installed():
    assert torch.__version__ in __config__.show()
    assert f"get_num_threads() : {torch.get_num_threads()}" in __config__.parallel_info()


@pytest.fixture
def conversions():
    yield
    __future__.set_overwrite_module_params_on_conversion(False)
    __future__.set_swap_module_params_on_conversion(False)


def test_conversions_may_overwrite_parameters(conversions):
    layer = nn.Linear(2, 2)
    first = layer.weight
    layer(torch.ones(1, 2)).sum().backward()
    assert layer.double().weight is first
    __future__.set_overwrite_module_params_on_conversion(True)
    layer.float()
    assert layer.weight is not first
    assert (layer.weight.dtype, layer.weight.grad.dtype, first.dtype) == (torch.float32, torch.float32, torch.float64)
    assert (layer.weight.requires_grad, first.grad.tolist()) == (True, layer.weight.grad.tolist())
    second = layer.weight
    __future__.set_swap_module_params_on_conversion(True)
    assert layer.double().weight is second


def test_states_of_generators():
    generator = torch.Generator().manual_seed(3)
    before, clone = generator.get_state(), generator.clone_state()
    first = torch.rand(3, generator=generator)
    assert torch.equal(torch.rand(3, generator=clone), first)
    assert generator.get_offset() == 1
    generator.set_state(before)
    assert torch.equal(torch.rand(3, generator=generator), first)
    generator.set_offset(0)
    assert torch.equal(torch.rand(3, generator=generator), first)
    other = torch.Generator().graphsafe_set_state(generator.graphsafe_get_state())
    torch.rand(3, generator=other)
    assert generator.get_offset() == 2
    assert torch.random.thread_safe_generator() is None
    with pytest.raises(TypeError, match=r"^expected a torch.ByteTensor, but got int$"):
        generator.set_state(3)
    with pytest.raises(TypeError, match=r"^RNG state must be a torch.ByteTensor, got torch.float32\[3\]$"):
        generator.set_state(torch.zeros(3))
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        generator.set_offset(-1)


def test_switches_of_libraries():
    backends = torch.backends
    assert backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    absent = (backends.mkl, backends.openmp, backends.nnpack, backends.kleidiai, backends.cusparselt)
    assert not any(module.is_available() for module in absent)
    assert backends.opt_einsum.is_available()
    assert backends.opt_einsum.get_opt_einsum().__name__ == "opt_einsum"
    with backends.opt_einsum.flags(strategy="optimal"), backends.nnpack.flags(enabled=True):
        assert (backends.opt_einsum.strategy, backends.nnpack.enabled) == ("optimal", True)
    assert (backends.opt_einsum.strategy, backends.nnpack.enabled) == ("auto", False)
    with pytest.raises(TypeError, match=r"^flags\(\) got an unexpected keyword argument 'fast'$"):
        backends.cudnn.flags(fast=True).__enter__()
    backends.mha.set_fastpath_enabled(False)
    assert not backends.mha.get_fastpath_enabled()
    backends.mha.set_fastpath_enabled(True)
    assert not backends.mps.is_macos13_or_newer() or backends.mps.is_macos_or_newer(13, 0)


def test_switches_of_cuda():
    cuda = torch.backends.cuda
    cuda.matmul.allow_fp16_reduced_precision_reduction = False
    assert cuda.matmul.allow_fp16_reduced_precision_reduction is False
    cuda.matmul.allow_fp16_reduced_precision_reduction = True
    assert cuda.preferred_linalg_library() == "default" == cuda.preferred_blas_library()
    with pytest.raises(
        RuntimeError, match=r"^preferred_linalg_library: Unknown input value\. Choose from: default, cu"
    ):
        cuda.preferred_linalg_library("lapack")
    with pytest.raises(RuntimeError, match=r"^fp32_precision must be 'ieee', 'tf32' or 'none', got 'low'$"):
        cuda.matmul.fp32_precision = "low"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has such a device")
def test_plans_of_transforms_need_a_device():
    with pytest.raises(
        WeftError, match=r"^cufft_plan_cache: expected 0 <= device index < 0, but got device with index 0"
    ):
        torch.backends.cuda.cufft_plan_cache[0]


def test_warnings_may_come_each_time():
    def warned():
        with pytest.warns(UserWarning, match=r"^Using a target size") as caught:
            [nn.functional.mse_loss(torch.ones(2), torch.ones(2, 1)) for _ in range(2)]
        return len(caught)

    torch.set_warn_always(True)
    try:
        assert torch.is_warn_always_enabled()
        assert warned() == 2
    finally:
        torch.set_warn_always(False)
    with pytest.raises(RuntimeError, match=r"expects a bool, but got int$"):
        torch.set_warn_always(1)


def test_sobol_points_are_joe_and_kuos():
    engine = torch.quasirandom.SobolEngine(3)
    first = [[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75]]
    assert engine.draw(2).tolist() == first[:2]
    assert engine.draw(2, dtype=torch.float64).tolist() == first[2:]
    assert engine.reset().fast_forward(3).draw().tolist() == first[3:]
    assert engine.draw_base2(2).shape == (4, 3)
    with pytest.raises(ValueError, match="8 points have been previously generated, then: n=8\\+2\\*\\*1=10"):
        engine.draw_base2(1)
    with pytest.raises(ValueError, match=r"dimensionality for SobolEngine is \[1, 21201\], got 0"):
        torch.quasirandom.SobolEngine(0)


def test_scrambled_sobol_points_follow_the_seed():
    torch.manual_seed(0)
    first = torch.quasirandom.SobolEngine(2, scramble=True).draw(8)
    torch.manual_seed(0)
    assert torch.quasirandom.SobolEngine(2, scramble=True).draw(8).tolist() == first.tolist()
    assert torch.quasirandom.SobolEngine(2, scramble=True).draw(8).tolist() != first.tolist()
    assert sorted((first[:, 0] * 8).int().tolist()) == list(range(8))  # still one in each eighth
    assert repr(torch.quasirandom.SobolEngine(2, True, 7)) == "SobolEngine(dimension=2, scramble=True, seed=7)"


def test_older_paths_lead_to_the_same_objects():
    from weft.autograd.variable import Variable
    from weft.distributed.fsdp.api import ShardingStrategy
    from weft.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
    from weft.distributed.tensor.parallel.style import ColwiseParallel
    from weft.functional import einsum
    from weft.nn.common_types import _size_2_t
    from weft.nn.parallel.replicate import replicate
    from weft.nn.parallel.scatter_gather import scatter_kwargs
    from weft.optim.adamw import AdamW

    assert Variable is torch.autograd.Variable
    assert ShardingStrategy is torch.distributed.fsdp.ShardingStrategy
    assert FullyShardedDataParallel is torch.distributed.fsdp.FullyShardedDataParallel
    assert ColwiseParallel is torch.distributed.tensor.parallel.ColwiseParallel
    assert einsum is torch.einsum
    assert replicate is nn.parallel.replicate
    assert AdamW is torch.optim.AdamW
    assert _size_2_t == int | tuple[int, int]
    assert scatter_kwargs((torch.arange(2),), {"scale": 3}, ["cpu", "cpu"])[1] == ({"scale": 3}, {"scale": 3})


def test_variables_are_tensors():
    x = torch.ones(2)
    v = torch.autograd.Variable(x, requires_grad=True)
    assert isinstance(x, torch.autograd.Variable)
    assert not isinstance(2, torch.autograd.Variable)
    (v * 3).sum().backward()
    assert (v.grad.tolist(), x.requires_grad, torch.autograd.Variable().shape) == ([3, 3], False, (0,))
    with pytest.raises(TypeError, match=r"^Variable data has to be a tensor, but got list"):
        torch.autograd.Variable([1.0])


def test_extensions_in_cpp_are_refused_when_they_are_built():
    from weft.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension, load

    assert CUDA_HOME is None
    for call in (lambda: load("name", ["a.cpp"]), lambda: CUDAExtension("name", []), BuildExtension):
        with pytest.raises(NotImplementedError, match="make the operator with `weft"):
            call()
