"""Switches that programs set at start, names of layouts, and the modules of devices."""

from __future__ import annotations

import os
import pickle

import pytest

import weft
import weft.backends.cuda
import weft.backends.cudnn
from weft._base.threads import initial_threads


@pytest.fixture(autouse=True)
def restored():
    precision = weft.get_float32_matmul_precision()
    yield
    weft.set_float32_matmul_precision(precision)
    weft.set_default_device(None)
    weft.set_anomaly_enabled(False)


def test_threads_are_those_of_the_machine_until_they_are_set():
    before, cpus = weft.get_num_threads(), weft.get_num_interop_threads()
    assert 1 <= cpus <= (os.cpu_count() or 1)
    try:
        weft.set_num_threads(cpus + 1)
        weft.set_num_interop_threads(1)
        assert (weft.get_num_threads(), weft.get_num_interop_threads()) == (cpus + 1, cpus)
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize(("value", "count"), [("3", 3), ("0", 1), ("many", None), (None, None)])
def test_the_environment_says_how_many_threads_there_are(value, count):
    environment = {} if value is None else {"OMP_NUM_THREADS": value}
    assert initial_threads(environment) == (count or weft.get_num_interop_threads())


@pytest.mark.parametrize("name", ["set_num_threads", "set_num_interop_threads"])
def test_odd_numbers_of_threads_are_refused(name):
    with pytest.raises(RuntimeError, match=rf"^{name} expects a positive integer$"):
        getattr(weft, name)(0)
    with pytest.raises(RuntimeError, match=rf"^{name} expects an int, but got float$"):
        getattr(weft, name)(1.0)


def test_determinism_is_remembered():
    assert not weft.are_deterministic_algorithms_enabled()
    weft.use_deterministic_algorithms(True)
    assert weft.are_deterministic_algorithms_enabled()
    assert weft.get_deterministic_debug_mode() == 2
    weft.use_deterministic_algorithms(True, warn_only=True)
    assert weft.is_deterministic_algorithms_warn_only_enabled()
    assert weft.get_deterministic_debug_mode() == 1
    weft.set_deterministic_debug_mode("default")
    assert not weft.are_deterministic_algorithms_enabled()


def test_odd_debug_modes_are_refused():
    with pytest.raises(RuntimeError, match=r"expected one of `default`, `warn`, `error`, but got loud$"):
        weft.set_deterministic_debug_mode("loud")
    with pytest.raises(RuntimeError, match=r"^invalid value of debug_mode, expected 0, 1, or 2, but got 3$"):
        weft.set_deterministic_debug_mode(3)
    with pytest.raises(TypeError, match=r"^debug_mode must be str or int, but got <class 'float'>$"):
        weft.set_deterministic_debug_mode(1.0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_precision_is_remembered(precision):
    weft.set_float32_matmul_precision(precision)
    assert weft.get_float32_matmul_precision() == precision
    assert weft.backends.cuda.matmul.allow_tf32 is (precision != "highest")
    assert (weft.ones(2, 2) @ weft.ones(2, 2)).tolist() == [[2, 2], [2, 2]]


def test_tf32_is_a_precision():
    weft.backends.cuda.matmul.allow_tf32 = True
    assert weft.get_float32_matmul_precision() == "high"
    weft.backends.cuda.matmul.allow_tf32 = False
    assert weft.get_float32_matmul_precision() == "highest"


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match=r"precision must be one of highest, high, medium, got 'low'$"):
        weft.set_float32_matmul_precision("low")


@pytest.mark.compiled
def test_denormal_numbers_are_always_flushed():
    assert weft.set_flush_denormal(True) is True
    assert weft.set_flush_denormal(False) is False
    x = weft.tensor([1e-40, -1e-40])
    assert (x == 0).all()
    assert (x * 2).tolist() == [0, 0]
    assert (-x).tolist() == [-i for i in x.tolist()] != [0, 0]
    assert (weft.tensor(1e-6, dtype=weft.float16) * 2).item() > 1e-6
    with pytest.raises(RuntimeError, match=r"^flush_denormal expects a bool, but got int$"):
        weft.set_flush_denormal(1)


def test_the_default_type_by_its_former_name():
    with pytest.warns(UserWarning, match=r"^torch.set_default_tensor_type\(\) is deprecated as of PyTorch 2.1"):
        weft.set_default_tensor_type("torch.DoubleTensor")
    assert weft.ones(1).dtype is weft.float64
    with (
        pytest.warns(UserWarning, match="is deprecated"),
        pytest.raises(TypeError, match=r"^invalid type object: only floating-point types are .* not 'torch.Sparse'$"),
    ):
        weft.set_default_tensor_type("torch.Sparse")


def test_anomaly_detection_is_known():
    weft.set_anomaly_enabled(True)
    assert weft.is_anomaly_enabled()
    assert weft.is_anomaly_check_nan_enabled()
    weft.set_anomaly_enabled(True, check_nan=False)
    assert (weft.is_anomaly_enabled(), weft.is_anomaly_check_nan_enabled()) == (True, False)
    weft.set_anomaly_enabled(False)
    assert (weft.is_anomaly_enabled(), weft.is_anomaly_check_nan_enabled()) == (False, True)


def test_modules_of_devices():
    assert weft.get_device_module() is weft.get_device_module("cpu") is weft.cpu
    assert weft.get_device_module(weft.device("cuda", 0)) is weft.cuda
    assert (weft.cpu.is_available(), weft.cpu.device_count(), weft.cpu.current_device()) == (True, 1, "cpu")
    with pytest.raises(RuntimeError, match=r"^Device 'tpu' does not have a corresponding module registered"):
        weft.get_device_module("tpu")


def test_names_of_layouts_print_and_travel():
    assert (repr(weft.strided), repr(weft.channels_last)) == ("torch.strided", "torch.channels_last")
    assert isinstance(weft.strided, weft.layout)
    assert isinstance(weft.preserve_format, weft.memory_format)
    assert pickle.loads(pickle.dumps(weft.strided)) is weft.strided
    with pytest.raises(TypeError, match=r"^cannot create 'layout' instances; use torch\.strided$"):
        weft.layout("strided")


def test_memory_formats_are_accepted():
    images = weft.ones(2, 3, 4, 4).to(memory_format=weft.channels_last)
    assert images.contiguous(memory_format=weft.contiguous_format).shape == (2, 3, 4, 4)


def test_flags_of_backends():
    cudnn = weft.backends.cudnn
    with cudnn.flags(enabled=False, benchmark=True):
        assert (cudnn.enabled, cudnn.benchmark) == (False, True)
    assert (cudnn.enabled, cudnn.benchmark, cudnn.version()) == (True, False, None)
    assert weft.backends.cuda.is_built() is cudnn.is_available() is weft.cuda.is_available()
    assert weft.backends.mps.is_available() is weft.backends.mps.is_built() is False
    assert not weft.backends.mkldnn.is_available()


def test_the_quantized_engine_is_one_of_the_supported_ones(monkeypatch):
    quantized = weft.backends.quantized
    for wrong in ("bogus", 3):
        with pytest.raises(
            RuntimeError, match=f"^{wrong} is not a valid value for quantized engine; use one of qnnpack"
        ):
            quantized.engine = wrong
    with pytest.raises(RuntimeError, match=r"^Assignment not supported"):
        quantized.supported_engines = []
    assert quantized.engine == "x86"
    for name in quantized.supported_engines:
        monkeypatch.setattr(quantized, "engine", name)
        assert quantized.engine == name


def test_versions():
    assert weft.version.__version__ == weft.__version__
    assert weft.version.cuda is None


def test_writes_to_repeated_places_are_refused_where_determinism_is_asked_for():
    places, values = weft.tensor([0, 0]), weft.tensor([1.0, 2.0])
    weft.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match=r"^put_ does not have a deterministic implementation, but you set 'torch\."):
        weft.ones(5).put_(places, values)
    with pytest.raises(RuntimeError, match=r"^max_unpooling2d_forward_out does not have a deterministic implement"):
        weft.nn.MaxUnpool1d(3, 1)(weft.ones(1, 1, 7), weft.zeros(1, 1, 7, dtype=weft.int64))
    assert weft.ones(5).put_(places, values, accumulate=True).tolist() == [4, 1, 1, 1, 1]
    weft.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=r"^put_ does not have a deterministic implementation"):
        assert weft.ones(5).put(places, values).tolist() == [2, 1, 1, 1, 1]
