"""The public names of `distributed` and `multiprocessing`, with their arguments, against PyTorch's."""

from __future__ import annotations

import importlib
import inspect
from types import FunctionType, ModuleType

import numpy as np
import pytest

import weft
from weft.distributed.algorithms.ddp_comm_hooks import quantization_hooks as ours

torch = pytest.importorskip("torch", reason="needs torch")
theirs = pytest.importorskip(
    "torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks", reason="needs torch", exc_type=ImportError
)

pytestmark = pytest.mark.oracle

MISSING = {
    # of C++ classes that are something else here
    "GroupName",
    "Logger",
    "Reducer",
    "ProcessGroupNCCL",
    "ProcessGroupMPI",
    "record_comm",  # of PyTorch's compiler
    # what the package itself has imported or needs
    "RankType",
    "config",
    "log",
    "timedelta",
}
INNER = {"init_process_group": {"_ranks"}}
MORE = {"rendezvous"}  # `timeout` has a name of its own


def public(package):
    return {name for name in dir(package) if not name.startswith("_")}


def test_names_are_there():
    found = public(torch.distributed)
    submodules = {name for name in found if type(getattr(torch.distributed, name)) is ModuleType}  # as imported so far
    assert found - public(weft.distributed) - MISSING - submodules == set()
    assert public(weft.distributed) & MISSING == set()


def test_functions_have_pytorchs_arguments():
    for name in sorted(public(torch.distributed) & public(weft.distributed) - MORE):
        expected, found = getattr(torch.distributed, name), getattr(weft.distributed, name)
        if type(expected) is FunctionType:
            wanted = [one for one in inspect.signature(expected).parameters if one not in INNER.get(name, ())]
            assert list(inspect.signature(found).parameters) == wanted, name


@pytest.mark.parametrize("name", ["spawn", "start_processes", "set_sharing_strategy"])
def test_processes_are_started_by_the_same_arguments(name):
    expected, found = (inspect.signature(getattr(one.multiprocessing, name)) for one in (torch, weft))
    assert [(p.name, p.default) for p in found.parameters.values()] == [
        (p.name, p.default) for p in expected.parameters.values()
    ]


def test_gradients_are_quantised_as_by_pytorchs_hooks():
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = (rng.standard_normal((4, 64)) * 10 ** rng.uniform(-3, 3) + rng.integers(-1, 2)).astype(np.float32)
        observer = torch.ao.quantization.PerChannelMinMaxObserver()
        observer(torch.tensor(x))
        scale, zero = observer.calculate_qparams()
        ranges = np.stack([scale.numpy(), zero.numpy().astype(np.float32)])
        np.testing.assert_allclose(ours._ranges(weft.tensor(x)).numpy()[:, :, 0], ranges, rtol=1e-6)
        levels = theirs._quantize_per_channel_backend(torch.tensor(x), scale, zero)
        given = weft.tensor(ranges[:, :, None])
        mine = ours._quantised(weft.tensor(x), given)
        assert mine.tolist() == levels.tolist()
        expected = theirs._dequantize_per_channel_backend(levels, scale, zero)
        np.testing.assert_allclose(ours._restored(mine, given).numpy(), expected.numpy(), rtol=1e-6)


ENDPOINTS = (
    "",
    " ",
    "~",
    "a",
    "a:1",
    " a:1 ",
    "a :1",
    "a: 1",
    "a:",
    "a:x",
    "a:65535",
    "a:65536",
    "a:123456",
    "a:-1",
    "a:1_0",
    "a_b-1.c:2",
    "-a:1",
    ".a",
    "a..b",
    "a@b:1",
    "a,b",
    "a/b",
    "http://a:1",
    "[::1]",
    "[::1]:1",
    "[::1",
    "::1]:3",
    "[]",
    "[]:1",
    "[a]:1",
    ":1",
    "\N{LATIN SMALL LETTER E WITH ACUTE}:1",
    "1.2.3.4:5",
    "256.1.1.1:2",
    "*:1",
    "a!",
    "$HOST:1",
    "a;b",
    "[1.2.3.4]:5",
    "a:00001",
    "a:000001",
)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_endpoints_of_a_rendezvous_are_taken_and_refused_as_by_pytorch(endpoint):
    def found(package):
        utils = importlib.import_module(f"{package}.distributed.elastic.rendezvous.utils")
        try:
            return utils.parse_rendezvous_endpoint(endpoint, 29)
        except ValueError as error:
            return str(error).partition(" an ")[0]  # what is said of the host or of the port

    assert found("weft") == found("torch")
