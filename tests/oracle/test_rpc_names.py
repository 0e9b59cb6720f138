"""The names of `distributed.rpc` and what stands on it, with their arguments, against PyTorch's."""

from __future__ import annotations

import importlib
import inspect
from types import FunctionType, ModuleType

import pytest

import weft

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]

# by module, the public names that are left out
MISSING = {
    "rpc": {
        "RpcAgent",  # a class in C++; what it does is reached by functions
        "RemoteProfilerManager",
        "enable_gil_profiling",  # of the old profiler
        "AllGatherStates",
        "method_factory",
        "new_method",  # inner parts that are public by oversight
        "Store",  # imported from elsewhere
    },
    "rpc.api": {
        "AllGatherStates",
        "GenericWithOneTypeVar",
        "PyRRef",
        "PythonUDF",
        "RemoteProfilerManager",
        "T",
        "docstring",
        "method",
        "method_factory",
        "method_name",
        "new_method",
    },
    "rpc.backend_registry": set(),
    "rpc.options": set(),
    "rpc.functions": set(),
    "rpc.constants": set(),
    "autograd": {"DistAutogradContext"},  # a class in C++ that only tests look into
    "nn": {"Function", "ReduceOp"},
    "nn.api.remote_module": {"Parameter", "RemovableHandle", "T", "Tensor"},
    "optim": set(),
    "remote_device": set(),
}
# what other modules of PyTorch have put there
FOREIGN = {
    "Any",
    "Future",
    "Generator",
    "Generic",
    "Iterator",
    "Mapping",
    "ParamSpec",
    "Self",
    "TYPE_CHECKING",
    "TypeVar",
    "annotations",
    "cast",
    "device",
    "dtype",
    "group",
    "logger",
    "timedelta",
    "urlparse",
}
INNER = {
    "_all_gather",
    "_barrier",
    "_is_current_rpc_agent_set",
    "_remote_device",
    "_require_initialized",
    "_set_rpc_timeout",
    "_wait_all",
}


def modules(name):
    return importlib.import_module(f"torch.distributed.{name}"), importlib.import_module(f"weft.distributed.{name}")


def names(module):
    """What a module has itself: no submodules, nor what it has imported from them."""
    return {
        name
        for name in dir(module)
        if not (name.startswith("_") or name in FOREIGN or isinstance(getattr(module, name), ModuleType))
    }


@pytest.mark.parametrize("name", MISSING)
def test_names_are_there(name):
    expected, found = modules(name)
    assert {one for one in names(expected) if not hasattr(found, one)} == MISSING[name]


@pytest.mark.parametrize("name", MISSING)
def test_functions_have_pytorchs_arguments(name):
    expected, found = modules(name)
    for one in sorted((names(expected) | INNER) & set(dir(expected)) & set(dir(found))):
        function = getattr(expected, one)
        if type(function) is FunctionType:
            assert list(inspect.signature(getattr(found, one)).parameters) == list(
                inspect.signature(function).parameters
            ), one


@pytest.mark.parametrize("name", sorted(INNER - {"_is_current_rpc_agent_set", "_set_rpc_timeout"}))
def test_inner_functions_that_programs_use_are_there(name):
    module = weft.distributed if name == "_remote_device" else weft.distributed.rpc.api
    assert hasattr(module, name)


@pytest.mark.parametrize("name", ["RRef", "TensorPipeRpcBackendOptions", "RpcBackendOptions", "WorkerInfo"])
def test_classes_have_pytorchs_members(name):
    expected, found = getattr(torch.distributed.rpc, name), getattr(weft.distributed.rpc, name)
    there = {one for one in dir(found) if not one.startswith("_")}
    instance = found() if "Options" in name else None
    assert {one for one in dir(expected) if not one.startswith("_")} <= there | set(dir(instance))


@pytest.mark.parametrize(
    "text",
    [
        "trainer0/cpu",
        "trainer0",
        "ps0/cuda:0",
        "rank:0/cpu",
        "rank:0",
        "rank:12/cuda:1",
        "cpu",
        "cuda:1",
        "/cpu",
        "a/b/c",
        "rank:x/cpu",
        "worker/nodevice",
        "",
    ],
)
def test_remote_devices_are_read_alike(text):
    results = []
    for made in (torch.distributed._remote_device, weft.distributed._remote_device):
        try:
            one = made(text)
            results.append((one.worker_name(), one.rank(), str(one.device()), repr(one), one == made(text)))
        except (ValueError, RuntimeError) as error:
            results.append((isinstance(error, ValueError), str(error)[:15]))
    assert results[0] == results[1]
