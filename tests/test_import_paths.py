"""Modules that carry names only: found by all ways of Python, with the same objects as their packages, and typed."""

from __future__ import annotations

import importlib.resources
import importlib.util
import inspect
import pickle
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from tools import path_stubs

import weft
from weft import nn
from weft._import_paths.finder import children, names_of
from weft._import_paths.table import TABLE

ROOT = Path(weft.__file__).parent
STUBS = path_stubs.stubs()


@pytest.mark.parametrize("path", TABLE)
def test_an_entry_is_a_module_with_its_names(path):
    module = import_module(f"weft.{path}")
    assert module.__spec__ is not None
    assert importlib.util.find_spec(f"weft.{path}") is module.__spec__
    single, whole = names_of(module.__name__)
    for name, (origin, old) in single.items():
        assert getattr(module, name) is getattr(import_module(origin), old), f"{path} has no {name}"
    assert set(dir(module)) >= {*single, *children(module.__name__)}
    for origin in whole:
        assert set(import_module(origin).__all__ if hasattr(import_module(origin), "__all__") else ()) <= set(
            dir(module)
        )
    parent, _, last = module.__name__.rpartition(".")
    assert hasattr(import_module(parent), last), f"weft.{parent} does not end with `_serve_below(__name__)`"


@pytest.mark.parametrize("path", TABLE)
def test_an_entry_hides_no_file(path):
    assert not ROOT.joinpath(path.replace(".", "/") + ".py").exists()
    assert not ROOT.joinpath(path.replace(".", "/"), "__init__.py").exists()


def test_entries_are_sorted():
    assert list(TABLE) == sorted(TABLE)


def test_a_package_stands_for_another_one_and_all_below_it():
    former, present = (import_module(f"weft.{top}nn.quantized.modules.linear") for top in ("", "ao."))
    assert former.Linear is present.Linear
    assert weft.nn.quantized.dynamic.modules.LSTM is weft.ao.nn.quantized.dynamic.LSTM
    assert weft.quantization.observer.MinMaxObserver is weft.ao.quantization.MinMaxObserver
    with pytest.raises(ModuleNotFoundError):
        import_module("weft.nn.quantized.nothing")


def test_modules_are_listed():
    found = {info.name: info.ispkg for info in pkgutil.iter_modules(nn.__path__, "weft.nn.")}
    assert found["weft.nn.modules"] and found["weft.nn.quantized"] and not found["weft.nn.parameter"]  # noqa: PT018
    assert found["weft.nn.functional"] is False
    below = [info.name for info in pkgutil.walk_packages(nn.modules.__path__, "weft.nn.modules.")]
    assert "weft.nn.modules.linear" in below
    tree = {info.name for info in pkgutil.walk_packages(nn.quantized.__path__, "weft.nn.quantized.")}
    assert {"weft.nn.quantized.dynamic.modules.rnn", "weft.nn.quantized.functional"} <= tree


def test_all_names_can_be_imported():
    names: dict[str, object] = {}
    exec("from weft.nn.modules.conv import *", names)
    assert names["Conv2d"] is nn.Conv2d
    assert "_ConvNd" not in names
    names.clear()
    exec("from weft.distributed._tensor.placement_types import *", names)
    assert names["Shard"] is weft.distributed.tensor.Shard


def test_a_function_keeps_its_name():
    replicate = nn.parallel.replicate
    assert import_module("weft.nn.parallel.replicate").replicate is replicate is nn.parallel.replicate
    assert import_module("weft.quantization.fuse_modules").fuse_modules is weft.quantization.fuse_modules


def test_pickles_may_name_such_modules():
    assert pickle.loads(b"cweft.nn.modules.linear\nLinear\n.") is nn.Linear
    assert pickle.loads(b"cweft.nn.quantized.modules.linear\nLinear\n.") is weft.ao.nn.quantized.Linear


def test_modules_have_no_files():
    assert list(importlib.resources.files("weft.nn.modules").iterdir()) == []
    assert not hasattr(nn.modules, "__file__")
    assert inspect.getdoc(nn.modules.linear) == "The names of PyTorch's module `nn.modules.linear`."


def test_what_is_missing_is_named():
    with pytest.raises(AttributeError, match=r"'weft\.nn\.modules\.linear' has no attribute 'Linea'"):
        nn.modules.linear.Linea
    with pytest.raises(ImportError, match="Linea"):
        exec("from weft.nn.modules.linear import Linea")
    with pytest.raises(AttributeError, match=r"module 'weft\.optim' has no attribute 'Adm'"):
        weft.optim.Adm


def test_modules_are_found_again_when_what_is_found_was_forgotten():
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    for name in ("weft.distributions.gamma", "weft.distributions.beta"):
        sys.modules.pop(name, None)
        assert import_module(name)


def test_importing_the_package_reads_no_table():
    script = "import sys, weft; print('weft._import_paths.table' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def test_torch_has_the_same_modules():
    script = (
        "import weft; weft.as_torch()\n"
        "import torch.optim.adamw, torch.nn.modules.linear as linear, torch.nn.parallel.replicate\n"
        "from torch.nn.quantized.modules.linear import Linear\n"
        "import sys\n"
        "assert sys.modules['torch.optim.adamw'] is sys.modules['weft.optim.adamw']\n"
        "assert linear.Linear is weft.nn.Linear and Linear is weft.ao.nn.quantized.Linear\n"
        "print(callable(torch.nn.parallel.replicate))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("name", STUBS)
def test_a_stub_is_of_a_module_and_imports_what_there_is(name):
    module = import_module(f"weft.{name.removesuffix('.pyi').removesuffix('/__init__').replace('/', '.')}")
    names: dict[str, object] = {}
    exec(STUBS[name], names)
    public = {name: value for name, value in names.items() if name[0] != "_" and not isinstance(value, ModuleType)}
    assert all(getattr(module, name) is value for name, value in public.items())
