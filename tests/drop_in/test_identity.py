"""Where `torch` is Weft, names are PyTorch's: of modules, of classes and functions, in files, and for `inspect`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tests.drop_in import names

ROOT = Path(weft.__file__).parents[2]
OTHER_HOMES = {
    "operators are from the module by which they are called": (
        "torch.functional torch._higher_order_ops.while_loop torch._linalg_utils torch._lobpcg torch._lowrank "
        "torch._tensor_str torch.masked._ops torch.signal.windows.windows"
    ),
    "one class makes the functions of all types of devices": (
        "torch.cuda.graphs torch.cuda.memory torch.cuda.random torch.cuda.streams"
    ),
    "it is no part of a binary here": (
        "torch._C._autograd torch._C._distributed_c10d torch._C._distributed_rpc torch._C._profiler"
    ),
    "there is no such module here": (
        "torch._jit_internal torch.distributed.pipelining._IR torch.distributed.pipelining.stage "
        "torch.export.graph_signature torch.jit._async torch.jit._fuser torch.jit._serialization "
        "torch.masked.maskedtensor.core torch.masked.maskedtensor.creation torch.multiprocessing.spawn "
        "torch.nn.modules.linear_cross_entropy_options torch.profiler.profiler"
    ),
    "a neighbour holds it": (
        "torch.ao.nn.quantized.modules torch.ao.nn.quantized.modules.activation torch.jit torch.jit._script "
        "torch.jit._trace torch.utils.data._utils.worker"
    ),
}
"""Modules of which Weft says otherwise, by the reason."""
OTHER_NAMES = {
    "torch": (
        "DisableTorchFunction DisableTorchFunctionSubclass Future ScriptModule StorageBase classproperty fork "
        "is_grad_enabled is_inference_mode_enabled wait"
    ),
    "torch.ao.quantization": "default_eval_fn",
    "torch.autograd": "variable",
    "torch.compiler": "compile",
    "torch.cuda": "CudaError",
    "torch.distributed": "breakpoint is_available",
    "torch.distributed.fsdp": "OptimStateKeyType",
    "torch.distributed.rpc": "BackendType RRef init_rpc is_available",
    "torch.distributed.tensor.parallel": "loss_parallel",
    "torch.overrides": "get_default_nowrap_functions get_ignored_functions get_testing_overrides",
    "torch.utils.checkpoint": "CheckpointError",
    "torch.utils.data": "functional_datapipe",
}
"""What is the same object under several names, or of one kind here and of several in PyTorch."""


def run(program, *how, folder=ROOT, **variables):
    environment = {**os.environ, "WEFT_COMPILE_CACHE": "", "PYTHONPATH": str(ROOT / "src"), **variables}
    command = [sys.executable, *how, program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_weft(code, folder=ROOT, **variables):
    return run(code, "-m", "weft", "-c", folder=folder, **variables)


def flat(homes):
    return {
        (package, name): home for package, by in homes.items() for home, some in by.items() for name in some.split()
    }


def test_public_classes_and_functions_are_from_pytorchs_modules():
    homes, unfound = json.loads(run(str(Path(names.__file__)), "-m", "weft"))
    assert unfound == []
    expected, actual = flat(names.RECORDED), flat(homes)
    other = {home for some in OTHER_HOMES.values() for home in some.split()}
    differing = {
        f"{package}:{name} is from {actual[package, name]}, in PyTorch from {home}"
        for (package, name), home in expected.items()
        if actual.get((package, name), home) != home
        and home not in other
        and not actual[package, name].startswith("weft._absent")  # what stands for things that only PyTorch has
        and name not in OTHER_NAMES.get(package, "").split()
        and not (package == "torch" and "autocast" in name)
        and not (package == "torch.cuda" and actual[package, name] == "weft._devices.device_type")
        and not (package == "torch.nn.functional" and home == "torch")  # a function of `torch` of the same name
    }
    assert not differing, "\n".join(sorted(differing))
    assert len(expected.keys() & actual.keys()) > 1900


def test_modules_and_classes_print_as_pytorchs():
    output = by_weft(
        "import torch, weft, sys\n"
        "from torch import nn\n"
        "assert torch is weft and nn is weft.nn\n"
        "print(torch.__name__, nn.__name__, nn.modules.linear.__name__, torch.Tensor, nn.Linear, torch.dtype)\n"
        "print(torch.float32, type(torch.Size([1])), type(torch.ones(2).max(0)), nn.functional.relu.__module__)\n"
        "print(nn.LSTM.__mro__[1:3], nn.modules.module.Module.__mro__[1].__module__)\n"
        "print(sys.modules[nn.Linear.__module__].Linear is nn.Linear, sys.modules['torch.nn.init'] is "
        "sys.modules['weft.nn.init'])\n"
        "class Own(nn.Module): pass\n"
        "print(Own, torch.typename(nn.Linear), weft.errors.__name__)\n"
    )
    assert output.splitlines() == [
        "torch torch.nn torch.nn.modules.linear <class 'torch.Tensor'> <class 'torch.nn.modules.linear.Linear'> "
        "<class 'torch.dtype'>",
        "torch.float32 <class 'torch.Size'> <class 'torch.return_types.max'> torch.nn.functional",
        "(<class 'torch.nn.modules.rnn.RNNBase'>, <class 'torch.nn.modules.module.Module'>) weft.nn._lookup",
        "True True",
        "<class '__main__.Own'> torch.nn.modules.linear.Linear weft.errors",
    ]


def test_what_was_loaded_before_is_renamed_and_without_the_alias_nothing_is():
    program = (
        "import weft\n"
        "from weft import nn\n"
        "def names(): return [weft.__name__, nn.Linear.__module__, weft.add.__module__, weft.Tensor.__module__]\n"
        "print(*names())\n"
        "weft.as_torch()\n"
        "print(*names())\n"
    )
    assert run(program, "-W", "ignore", "-c").splitlines() == [
        "weft weft.nn._linear weft weft._tensor.tensor",
        "torch torch.nn.modules.linear torch torch",
    ]


def test_inspect_finds_what_classes_are_made_of():
    output = by_weft(
        "import inspect, pydoc, typing\n"
        "from torch import nn\n"
        "for kind in (nn.Linear, nn.Module):\n"
        "    print(inspect.getsource(kind).splitlines()[0], inspect.getfile(kind).rpartition('/')[2])\n"
        "print(typing.get_type_hints(nn.Linear)['training'], inspect.signature(nn.Linear, eval_str=True).parameters["
        "'dtype'])\n"
        "print(pydoc.plain(pydoc.render_doc(nn.Linear)).splitlines()[0])\n"
    )
    assert output.splitlines() == [
        "class Linear(Module): _linear.py",
        "class Module(Lookup): _module.py",
        "<class 'bool'> dtype: torch.dtype | None = None",
        "Python Library Documentation: class Linear in module torch.nn.modules.linear",
    ]


WRITE = """
import pickle, torch as t
model = t.nn.Sequential(t.nn.Linear(2, 1), t.nn.ReLU())
optimizer = t.optim.AdamW(model.parameters())
t.save([model, optimizer, t.float32, t.Size([2]), t.nn.functional.relu, t.nn.LSTM], "whole.pt")
t.save({"weight": t.nn.Parameter(t.ones(2)), "size": t.Size([3]), "device": t.device("cpu")}, "safe.pt")
t.save(t.nn.Linear(2, 2), "trusted.pt")
with open("plain.pickle", "wb") as file:
    pickle.dump([model, optimizer, t.nn.LSTM, t.add, t.nn.functional.relu], file)
"""
READ = """
import torch as t
model, optimizer, dtype, size, relu, kind = t.load("whole.pt", weights_only=False)
assert model(t.ones(1, 2)).shape == (1, 1) and type(model[0]) is t.nn.Linear and type(optimizer) is t.optim.AdamW
assert dtype is t.float32 and size == t.Size([2]) and relu is t.nn.functional.relu and kind is t.nn.LSTM
safe = t.load("safe.pt")
assert type(safe["weight"]) is t.nn.Parameter and type(safe["size"]) is t.Size and safe["device"] == t.device("cpu")
"""
READ_PLAIN = """
import pickle, torch as t
model, optimizer, kind, add, relu = pickle.load(open("plain.pickle", "rb"))
assert type(model[0]) is t.nn.Linear and kind is t.nn.LSTM and add is t.add and relu is t.nn.functional.relu
"""
WITHOUT = ("-c",)
WITH = ("-m", "weft", "-c")


def in_process(program, how, folder):
    """Run a program with or without the alias."""
    run(program if how is WITH else program.replace("torch as t", "weft as t"), *how, folder=folder)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folders of files that were written with and without the alias."""
    folders = {how: tmp_path_factory.mktemp("written") for how in (WITH, WITHOUT)}
    for how, folder in folders.items():
        in_process(WRITE, how, folder)
    return folders


@pytest.mark.parametrize(("writer", "reader"), [(WITH, WITHOUT), (WITHOUT, WITH), (WITH, WITH)])
def test_files_are_read_with_and_without_the_alias(written, writer, reader):
    in_process(READ, reader, written[writer])
    if reader is WITH:  # another process has no `torch` that a pickle of Python's could name
        in_process(READ_PLAIN, reader, written[writer])


def test_graphs_optimizers_and_errors_take_classes_for_weft_s():
    by_weft(
        "import pickle, torch\n"
        "from torch import fx, nn, optim\n"
        "model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n"
        "graph = fx.symbolic_trace(model)\n"
        "assert [node.op for node in graph.graph.nodes] == ['placeholder', 'call_module', 'call_module', 'output']\n"
        "assert pickle.loads(pickle.dumps(graph))(torch.ones(1, 2)).shape == (1, 2)\n"
        "adam, sgd = (kind(model.parameters()) for kind in (optim.Adam, optim.SGD))\n"
        "try:\n"
        "    sgd.load_state_dict(adam.state_dict())\n"
        "    raise SystemExit('it has loaded')\n"
        "except ValueError as error:\n"
        "    assert 'Adam' in str(error), error\n"
        "assert torch.distributions.Normal(torch.zeros(2), 1.0).expand((3, 2)).batch_shape == (3, 2)\n"
        "class Holder(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner, self.weight = nn.Linear(1, 1), nn.Parameter(torch.ones(1))\n"
        "assert len([*Holder().parameters()]) == 3\n"
    )


ASKS = """
import importlib.metadata, importlib.util, sys
import torch
def versions():
    try:
        return importlib.metadata.version("torch_xla") == torch.__version__
    except importlib.metadata.PackageNotFoundError:
        return False
print(importlib.util.find_spec("torch_xla") is not None, versions())
import library
print(library.has_xla)
"""
LIBRARY = """
try:
    import torch_xla.core.xla_model
    has_xla = True
except ModuleNotFoundError as error:
    assert error.name == "torch_xla", error
    has_xla = False
"""


@pytest.mark.parametrize(
    ("first", "variables", "there"),
    [
        ("", {}, False),
        ("", {"USE_TORCH_XLA": "0"}, False),
        ("", {"USE_TORCH_XLA": "1"}, True),
        ("import weft_xla", {}, True),
        ("import torch_xla.core.xla_model as xm; import weft; assert xm is weft.xla.core.xla_model", {}, True),
    ],
)
def test_torch_xla_is_there_where_a_program_asks_for_it(tmp_path, monkeypatch, first, variables, there):
    monkeypatch.delenv("USE_TORCH_XLA", raising=False)
    (tmp_path / "library.py").write_text(LIBRARY)
    output = by_weft(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{first}\n{ASKS}", **variables)
    assert output.splitlines() == [f"{there} {there}", str(there)]
