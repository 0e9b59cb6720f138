"""The library: loading, processes, threads, and a build that checks addresses and undefined behaviour."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.native import exercise
from tests.native.formulas import close, draw
from weft.ops._kernels import library, product

ROOT = Path(__file__).parents[2]


def run(*command, **variables):
    """The lines that a Python program prints."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **variables)
    done = subprocess.run([sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_importing_weft_does_not_load_it():
    assert run("-c", "import weft; from weft.ops._kernels import library; print(library._state)") == ["[]"]


def test_turned_off():
    code = "from weft.ops._kernels import library; print(library.available(), library.status())"
    assert run("-c", code, WEFT_NATIVE="0") == ["False turned off by WEFT_NATIVE"]


def test_what_does_not_fit_is_said():
    assert library._misfit(library._VERSION, 0, 0) is None
    assert "has version 99" in library._misfit(99, 0, 0)
    assert "was built for version 99.0 of XLA's FFI" in library._misfit(library._VERSION, 99, 0)
    assert "was built for version 0.99 of XLA's FFI" in library._misfit(library._VERSION, 0, 99)


def test_missing_library(monkeypatch):
    monkeypatch.setattr(library, "_path", lambda: None)
    assert not library._load().ready
    assert "not built" in library._load().words


def test_broken_library(monkeypatch, tmp_path):
    path = tmp_path / "_native.so"
    path.write_text("no library")
    monkeypatch.setattr(library, "_path", lambda: path)
    assert "cannot be loaded" in library._load().words


def test_library_that_was_cut_off(monkeypatch, tmp_path):
    """Loading one would end the process."""
    whole, path = library._path().read_bytes(), tmp_path / "_native.so"
    monkeypatch.setattr(library, "_path", lambda: path)
    for size in (1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert not library._load().ready


def test_library_without_a_target(monkeypatch):
    monkeypatch.setattr(library, "_TARGETS", (*library._TARGETS, "weft_of_tomorrow"))
    assert "has no weft_of_tomorrow; install Weft again" in library._load().words


@pytest.mark.soak
def test_bits_do_not_depend_on_cores():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    digests = {run("-m", "tests.native.exercise", str(cores))[-1] for cores in (1, 2)}
    assert digests == {exercise.digest()}


@pytest.mark.soak
def test_bfloat16_without_tiles():
    """The variant for CPUs with AVX-512's instructions for bfloat16 and without AMX passes the same tests."""
    options = ["-p", "no:cacheprovider", "tests/native/test_products.py", "-k", "bfloat16"]
    assert any(" passed" in line for line in run("-m", "pytest", *options, WEFT_NATIVE_VARIANT="avx512"))


@pytest.mark.soak
def test_avx2():
    """The variant for CPUs without AVX-512 passes the same tests."""
    names = ("products", "convolutions", "attention", "recurrent", "rows", "extremes", "optimizer", "ufuncs", "threads")
    tests = [f"tests/native/test_{name}.py" for name in names]
    options = ["-p", "no:cacheprovider", *tests]
    assert any(" passed" in line for line in run("-m", "pytest", *options, WEFT_NATIVE_VARIANT="avx2"))
    assert run("-c", "from weft.ops._kernels import library; print(library.status())", WEFT_NATIVE_VARIANT="avx2") == [
        "in use, with AVX2"
    ]


_FORK = """
import os
from tests.native import exercise
from weft.ops._kernels import library, product
library.available()
child = os.fork()
print(exercise.digest(), flush=True)
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_forked_process():
    """The library is loaded before the fork. XLA itself cannot run in a process forked after it has run."""
    assert run("-c", _FORK) == [exercise.digest()] * 2


def test_threads_at_once():
    a = [draw(i, 200, 200) for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            results = list(threads.map(lambda x: np.asarray(product.matmul(x, x)), a))
            for x, result in zip(a, results, strict=True):
                close(result, x.astype(np.float64) @ x)


@pytest.mark.slow
def test_kernels_of_variants_share_no_code(tmp_path):
    """A function that two of them would link to might have been compiled with instructions that the CPU lacks."""
    if not shutil.which("nm"):
        pytest.skip("no nm")
    lines = subprocess.run(["nm", "-C", str(library._path())], capture_output=True, text=True, check=True).stdout
    names = [line.split(maxsplit=2)[2] for line in lines.splitlines() if len(line.split(maxsplit=2)) == 3]
    for name in ("exchange", "transpose", "strip_rows", "multiply", "parallel"):
        with_name = [full for full in names if f"::{name}<" in full.split("(", maxsplit=1)[0]]
        assert all(re.search(r"weft::(avx2|avx512|avx512_bf16|amx)::", full) for full in with_name)


@pytest.mark.soak
@pytest.mark.parametrize("variant", ["", "avx2"])
def test_sanitizers(variant, sanitized, monkeypatch):
    """No wrong address and no undefined behaviour in any kernel, over odd sizes."""
    path, runtime = sanitized
    code = (
        "from weft.ops._kernels import library; from pathlib import Path; "
        f"library._path = lambda: Path({str(path)!r}); "
        "from tests.native import exercise; print(library.status()); print(exercise.digest())"
    )
    lines = run(
        "-c", code,
        LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="print_stacktrace=1",
        WEFT_NATIVE_VARIANT=variant, PYTHONMALLOC="malloc",
    )  # fmt: skip
    assert lines[0].startswith("in use")
    assert len(lines[1]) == 64


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """The library with checks, and the runtime that a process needs for it."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no compiler")
    runtimes = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(map(os.path.isabs, runtimes)):
        pytest.skip("the compiler has no sanitizers")
    library = tmp_path_factory.mktemp("sanitized") / "_native.so"
    run("tools/native.py", "--sanitize", "--output", str(library))
    return library, " ".join(runtimes)
