"""Build the extension `weft._native` from `native/` with the system's C++ compiler: `CXX`, or g++, or clang++.

    python tools/native.py [--sanitize] [--output FILE]
    python tools/native.py --tidy

It holds the kernels for XLA on CPUs, and the machine that records and interprets. The kernels are compiled for AVX2 and
for AVX-512, those for bfloat16 for what AVX-512 has for it and for AMX; which are used is chosen when they are loaded.
What has not changed since the last build is not compiled again (`build/native`). `--sanitize` builds an extension that
stops at wrong addresses and undefined behaviour; a process has to preload the compiler's libasan to load it. `--tidy`
builds nothing, and shows what clang-tidy finds.

The build of a wheel, or of an editable installation, calls `build` (`tools/wheel.py`).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax.ffi
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "native" / "src"
EXTENSION = ROOT / "src" / "weft" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
OBJECTS = ROOT / "build" / "native"
PYTHON = (
    *("module", "objects", "record", "calls", "leaves", "modules", "checks", "views", "parts", "writes"),
    *("graph", "flush", "reading", "backward"),
    *(
        "machine",
        "describe",
        "plan",
        "space",
        "chain",
        "loops",
        "casts",
        "lines",
        "sorting",
        "threefry",
        "threads",
        "arrays",
    ),
    *("matmul", "ufuncs"),
)
KERNELS = (
    *("product", "conv", "conv_weight", "channels", "rows", "extremes", "elements", "functions"),
    *("attention", "recurrent", "optimizer"),
)
BF16_KERNELS = ("product_bf16",)
AVX2 = ("-mavx2", "-mfma")
AVX512 = (*AVX2, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mprefer-vector-width=512")
AVX512_BF16 = (*AVX512, "-mavx512bf16")
VARIANTS = {
    "avx2": (KERNELS, AVX2),
    "avx512": (KERNELS, AVX512),
    "avx512_bf16": (BF16_KERNELS, AVX512_BF16),
    "amx": (BF16_KERNELS, (*AVX512_BF16, "-mamx-tile", "-mamx-bf16")),
}
FLAGS = (
    *("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-missing-field-initializers"),
    # Sums of products in one rounding; neither errno nor floating-point traps are looked at.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def compiler() -> str | None:
    """The C++ compiler, or None."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    return next((path for name in names if (path := shutil.which(name))), None)


def build(output: Path = EXTENSION, sanitize: bool = False) -> str | None:
    """Write the extension; the reason in words if this system or its compiler cannot."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the extension is for Linux on x86-64, not {sys.platform} on {platform.machine()}"
    cxx = compiler()
    if cxx is None:
        named = os.environ.get("CXX")
        return f"CXX names {named}, which is not found" if named else "no C++ compiler: install g++, or name one by CXX"
    try:
        if sanitize:
            with tempfile.TemporaryDirectory() as folder:
                _compile(cxx, output, Path(folder), SANITIZE)
        else:
            _compile(cxx, output, OBJECTS / sysconfig.get_config_var("SOABI"))
    except subprocess.CalledProcessError as error:
        return f"{Path(error.cmd[0]).name} fails; it has to be g++ 12 or later, or clang++"
    return None


Source = tuple[Path, str, tuple[str, ...]]
"""A file, the name of what is compiled from it, and its flags."""


def _sources() -> list[Source]:
    headers = ("-O3", "-isystem", sysconfig.get_path("include"), "-isystem", np.get_include())
    sources: list[Source] = [(SOURCES / "ffi.cc", "ffi", ("-isystem", jax.ffi.include_dir()))]
    sources += [(SOURCES / f"{name}.cc", name, headers) for name in PYTHON]
    for variant, (kernels, flags) in VARIANTS.items():
        names = [(SOURCES / f"{name}.cc", f"{name}_{variant}") for name in kernels]
        sources += [(path, stem, (*flags, f"-DWEFT_VARIANT={variant}")) for path, stem in names]
    return sources


def _compile(cxx: str, output: Path, folder: Path, extra: tuple[str, ...] = ()) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    newest_header = max(path.stat().st_mtime for path in (*SOURCES.glob("*.h"), Path(__file__)))

    def compiled(source: Source) -> str:
        path, stem, flags = source
        result = folder / f"{stem}.o"
        newest = max(path.stat().st_mtime, newest_header)
        if not result.exists() or result.stat().st_mtime < newest:
            part = result.with_suffix(f".{os.getpid()}.part")
            subprocess.run([cxx, *FLAGS, *extra, *flags, "-c", str(path), "-o", str(part)], check=True)
            part.replace(result)
        return str(result)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(threads.map(compiled, _sources()))
    # A process that has loaded the old extension keeps it: the file is replaced, not written into.
    part = output.with_suffix(f".{os.getpid()}.part")
    subprocess.run([cxx, "-shared", "-pthread", *extra, *objects, "-o", str(part)], check=True)
    part.replace(output)


def tidy() -> int:
    """Look through all sources by clang-tidy, with the checks of `native/.clang-tidy`; 0 if it finds nothing."""
    program = str(Path(sys.executable).with_name("clang-tidy"))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        commands = [[program, "--quiet", str(path), "--", *FLAGS, *flags] for path, _, flags in _sources()]
        return max(threads.map(lambda command: subprocess.run(command, check=False).returncode, commands))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sanitize", action="store_true", help="stop at wrong addresses and undefined behaviour")
    parser.add_argument(
        "--output", type=Path, default=EXTENSION, help=f"the extension, {EXTENSION.name} of the package"
    )
    parser.add_argument("--tidy", action="store_true", help="show what clang-tidy finds, and build nothing")
    options = parser.parse_args()
    if options.tidy:
        return tidy()
    reason = build(options.output, options.sanitize)
    print(f"not built: {reason}" if reason else f"built {options.output}")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
