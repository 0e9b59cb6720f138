"""Build the CPU kernels of `native/` with the system's C++ compiler: `CXX`, or g++, or clang++.

    python tools/native.py [--sanitize] [--output FILE]
    python tools/native.py --tidy

The kernels are compiled for AVX2 and for AVX-512, those for bfloat16 for what AVX-512 has for it and for AMX, into one
library that chooses when it is loaded. `--sanitize` builds one that stops at wrong addresses and undefined behaviour; a
process has to preload the compiler's libasan to load it. `--tidy` builds nothing, and shows what clang-tidy finds.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax.ffi

NATIVE = Path(__file__).resolve().parent.parent / "native"
LIBRARY = NATIVE / "weft_native" / "libweft_native.so"
KERNELS = ("product", "conv", "conv_weight", "channels", "rows", "extremes", "attention", "recurrent", "optimizer")
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
    *("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
    # Sums of products in one rounding; neither errno nor floating-point traps are looked at.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def compiler() -> str | None:
    """The C++ compiler, or None."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    return next((path for name in names if (path := shutil.which(name))), None)


def build(output: Path = LIBRARY, sanitize: bool = False) -> str | None:
    """Write the library; the reason in words if this system or its compiler cannot."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the kernels are for Linux on x86-64, not {sys.platform} on {platform.machine()}"
    cxx = compiler()
    if cxx is None:
        named = os.environ.get("CXX")
        return f"CXX names {named}, which is not found" if named else "no C++ compiler: install g++, or name one by CXX"
    try:
        _compile(cxx, output, SANITIZE if sanitize else ())
    except subprocess.CalledProcessError as error:
        return f"{Path(error.cmd[0]).name} fails; it has to be g++ 12 or later, or clang++"
    return None


Source = tuple[Path, str, tuple[str, ...]]
"""A file, the name of what is compiled from it, and its flags."""


def _sources() -> list[Source]:
    sources: list[Source] = [(NATIVE / "src" / "ffi.cc", "ffi", ("-isystem", jax.ffi.include_dir()))]
    for variant, (kernels, flags) in VARIANTS.items():
        names = [(NATIVE / "src" / f"{name}.cc", f"{name}_{variant}") for name in kernels]
        sources += [(path, stem, (*flags, f"-DWEFT_VARIANT={variant}")) for path, stem in names]
    return sources


def _compile(cxx: str, output: Path, extra: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as threads:

        def compiled(source: Source) -> str:
            path, stem, flags = source
            result = f"{folder}/{stem}.o"
            subprocess.run([cxx, *FLAGS, *extra, *flags, "-c", str(path), "-o", result], check=True)
            return result

        objects = list(threads.map(compiled, _sources()))
        # A process that has loaded the old library keeps it: the file is replaced, not written into.
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
    parser.add_argument("--output", type=Path, default=LIBRARY, help=f"the library, {LIBRARY.name} of the package")
    parser.add_argument("--tidy", action="store_true", help="show what clang-tidy finds, and build nothing")
    options = parser.parse_args()
    if options.tidy:
        return tidy()
    reason = build(options.output, options.sanitize)
    print(f"not built: {reason}" if reason else f"built {options.output}")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
