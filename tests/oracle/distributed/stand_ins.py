"""What PyTorch's tests of distributed packages take from its test helpers, written anew."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import unittest
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.distributed as dist

SKIPPED = 70
"""The exit status of a rank that skips its test; 10 is that of one that fails."""


class _Skip(NamedTuple):
    exit_code: int
    message: str


class _Skips(dict[str, _Skip]):
    def __missing__(self, key: str) -> _Skip:
        return _Skip(SKIPPED, key)


TEST_SKIPS = _Skips()
FILE_SCHEMA = "file://"
IS_LINUX, IS_MACOS, IS_WINDOWS, IS_SANDCASTLE, IS_FBCODE = True, False, False, False, False
TEST_WITH_TSAN = TEST_WITH_DEV_DBG_ASAN = TEST_WITH_ROCM = TEST_CUDA = False
load_tests = None


# --- assertions -------------------------------------------------------------------------------------------------

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


class TestCase(unittest.TestCase):
    """Compares tensors, too."""

    def assertEqual(self, first: Any, second: Any, msg: Any = None, **kwargs: Any) -> None:
        if not _equal(first, second, **kwargs):
            self.fail(msg if isinstance(msg, str) else f"{first!r} and {second!r} differ")

    def assertNotEqual(self, first: Any, second: Any, msg: Any = None, **kwargs: Any) -> None:
        if _equal(first, second, **kwargs):
            self.fail(msg or f"{first!r} and {second!r} are equal")

    def assertGreaterAlmostEqual(
        self, first: float, second: float, places: int = 7, msg: Any = None, delta: float | None = None
    ) -> None:
        if first < second - (0.5 * 10**-places if delta is None else delta):
            self.fail(msg or f"{first} is less than {second}")

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, category: type[Warning], regex: str = "") -> Iterator[None]:
        with self.assertWarnsRegex(category, regex):
            yield


def _equal(a: Any, b: Any, *, rtol: float | None = None, atol: float | None = None, **_: Any) -> bool:
    if isinstance(a, weft.Tensor) or isinstance(b, weft.Tensor):
        x, y = (z.detach().cpu().numpy() if isinstance(z, weft.Tensor) else np.asarray(z) for z in (a, b))
        if isinstance(a, weft.Tensor) and isinstance(b, weft.Tensor) and (a.dtype is not b.dtype or x.shape != y.shape):
            return False
        relative, absolute = _TOLERANCES.get(x.dtype.name, (0, 0))
        relative, absolute = relative if rtol is None else rtol, absolute if atol is None else atol
        if x.dtype.name == "bfloat16":
            x, y = x.astype(np.float32), y.astype(np.float32)
        return bool(np.allclose(x, y, rtol=relative, atol=absolute, equal_nan=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key], rtol=rtol, atol=atol) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_equal(x, y, rtol=rtol, atol=atol) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, int | float) and not isinstance(b, bool):
        return bool(np.isclose(a, b, rtol=1e-7 if rtol is None else rtol, atol=1e-7 if atol is None else atol))
    return bool(a == b)


# --- cases that run in several processes ------------------------------------------------------------------------


class MultiProcessTestCase(TestCase):
    """A test that runs on each rank; `rank` and `file_name`, which all ranks share, are set there."""

    rank: int
    file_name: str

    def setUp(self) -> None:
        """The runner starts the processes."""

    @property
    def world_size(self) -> int:
        return 4

    @property
    def destroy_pg_upon_exit(self) -> bool:
        return True

    def _spawn_processes(self) -> None:
        pass

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **_: Any) -> None:
        self = cls(test_name)
        self.rank, self.file_name = rank, file_name
        self.run_test(test_name, pipe)
        if self.destroy_pg_upon_exit and dist.is_initialized():
            dist.destroy_process_group()

    def run_test(self, test_name: str, pipe: Any) -> None:
        weft.manual_seed(1234)
        np.random.seed(1234)
        getattr(self, test_name)()


def instantiate_parametrized_tests(cls: Any) -> Any:
    """Put each test that `parametrize` marks into a class once for each of its arguments."""
    for name, function in list(vars(cls).items()):
        if hasattr(function, "_arguments"):
            delattr(cls, name)
            for at, arguments in enumerate(function._arguments):
                setattr(cls, f"{name}_{at}", _with(function, arguments))
    return cls


def parametrize(names: str, values: Any, **_: Any) -> Callable[[Any], Any]:
    """Run a test with each of some values of an argument, or of several, separated by commas."""
    parameters = [name.strip() for name in names.split(",")]

    def mark(function: Any) -> Any:
        further = [dict(zip(parameters, value if len(parameters) > 1 else [value], strict=True)) for value in values]
        before = getattr(function, "_arguments", [{}])
        function._arguments = [{**a, **b} for a, b in product(before, further)]
        return function

    return mark


def _with(function: Any, arguments: dict[str, Any]) -> Any:
    return wraps(function)(lambda self: function(self, **arguments))


# --- what a test needs ------------------------------------------------------------------------------------------


def _skipping(reason: str, when: bool = True) -> Callable[[Any], Any]:
    return unittest.skip(reason) if when else lambda function: function


def skip_but_pass_in_sandcastle(reason: str) -> Callable[[Any], Any]:
    return _skipping(reason)


def skip_but_pass_in_sandcastle_if(condition: bool, reason: str) -> Callable[[Any], Any]:
    return _skipping(reason, condition)


def skip_if_lt_x_gpu(x: int, *, allow_cpu: bool = False) -> Callable[[Any], Any]:
    return _skipping(f"needs {x} GPUs", not allow_cpu)


def nccl_skip_if_lt_x_gpu(backend: str, x: int) -> Callable[[Any], Any]:
    return _skipping(f"needs {x} GPUs", backend == "nccl")


def require_n_gpus_for_nccl_backend(n: int, backend: str) -> Callable[[Any], Any]:
    return _skipping(f"needs {n} GPUs", backend == "nccl")


def skip_if_no_gpu(function: Any) -> Any:
    return _skipping("needs a GPU")(function)


def skip_if_rocm_multiprocess(function: Any) -> Any:
    return function


def _world_size() -> int:
    return int(os.environ["WORLD_SIZE"])


def skip_if_small_worldsize(function: Any) -> Any:
    return _skip_where(function, lambda: _world_size() <= 2, "needs 3 ranks")


def skip_if_odd_worldsize(function: Any) -> Any:
    return _skip_where(function, lambda: _world_size() % 2 == 1, "needs an even number of ranks")


def _skip_where(function: Any, when: Callable[[], bool], reason: str) -> Any:
    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if when():
            raise unittest.SkipTest(reason)
        return function(*args, **kwargs)

    return wrapper


def requires_gloo() -> Callable[[Any], Any]:
    return lambda function: function


def requires_nccl() -> Callable[[Any], Any]:
    return _skipping("needs NCCL")


def requires_nccl_version(version: Any, message: str) -> Callable[[Any], Any]:
    del version, message
    return lambda function: function


def with_nccl_blocking_wait(function: Any) -> Any:
    return function


def with_dist_debug_levels(levels: list[str]) -> Callable[[Any], Any]:
    """Run a test at each of some levels of TORCH_DISTRIBUTED_DEBUG."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result, before = None, os.environ.get("TORCH_DISTRIBUTED_DEBUG")
            for level in levels:
                os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
                dist.set_debug_level_from_env()
                result = function(*args, **kwargs)
                dist.barrier()
                if before is not None:
                    os.environ["TORCH_DISTRIBUTED_DEBUG"] = before
            return result

        return wrapper

    return decorate


class DistTestCases:
    """What backends can do, and cannot."""

    skip_collective = {  # noqa: RUF012
        "allgather_coalesced": {"nccl", "mpi"},
        "reduce": set(),
        "sendrecv anysource": {"nccl"},
        "cpu barrier": {"nccl"},
    }
    backend_feature = {  # noqa: RUF012
        "gpu": {"nccl", "gloo"},
        "cuda": {"nccl", "gloo"},
        "ddp": {"nccl", "gloo"},
        "subgroup": {"nccl", "gloo"},
        "plugin": set(),
    }


# --- things that tests use --------------------------------------------------------------------------------------


@contextlib.contextmanager
def captured_output() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(*args, **{**kwargs, "delete": False}) as file:
        name = file.name
    try:
        yield name
    finally:
        os.unlink(name)


def initialize_temp_directories(init_method: str | None = None) -> None:
    """Make the folders that ranks share."""
    del init_method
    folder = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder, name))
    os.environ["TEMP_DIR"] = folder


def cleanup_temp_dir() -> None:
    """The runner removes what tests leave."""


def init_multigpu_helper(world_size: int, backend: str) -> dict[int, list[int]]:
    del backend
    return {rank: [] for rank in range(world_size)}


def verify_ddp_error_logged(model: Any, text: str) -> None:
    assert text in model._get_ddp_logging_data()["error"]


def tp_transports() -> None:
    return None


def get_cycles_per_ms() -> float:
    return 1e6


def find_free_port() -> int:
    from weft.distributed.elastic.rendezvous.utils import free_port

    return free_port()


def simple_sparse_reduce_tests(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("Weft has no sparse tensors")


class builtins:
    """PyTorch's names of its operators."""

    @staticmethod
    def _find_builtin(function: Any) -> str:
        return f"aten::{function.__name__}"
