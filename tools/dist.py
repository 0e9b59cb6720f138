"""`make dist`: build wheels and the source archive, look at what they hold, and try the wheels where nothing else is.

Weft's wheel must hold the files of the package that git knows, the stubs that its build writes, and no others; the
source archive all files that git knows, so tests and documentation too. There is a wheel for each supported version of
Python that is on this machine, with the extension if there is a compiler. Each is then installed in an environment of
its own, in a temporary folder, and tried. At last comes the wheel of `as_torch/`, by which `torch` is Weft there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import native  # beside this file
import path_stubs

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13")
STEP = """
import weft
from weft import nn

assert "site-packages" in weft.__file__, weft.__file__
model = nn.Linear(4, 1)
optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = weft.randn(8, 4), weft.zeros(8, 1)


def loss():
    return nn.functional.mse_loss(model(inputs), targets)


before = loss()
before.backward()
optimizer.step()
assert loss().item() < before.item()
print("one step of training: the loss fell from %.4f to %.4f" % (before.item(), loss().item()))
"""
CHILD = """
import subprocess, sys
import torch

child = [sys.executable, "-c", "import torch, weft; assert torch is weft"]
subprocess.run(child, check=True)
"""
ALONE = """
import importlib.metadata, torch, weft

assert torch is weft and importlib.metadata.version("torch") == torch.__version__
print(f"torch {torch.__version__} is Weft")
"""
KERNELS = """
import sys
import weft
from weft import nn

words, count = sys.argv[1], int(sys.argv[2])
assert f"native kernels: {words}" in weft.__config__.show(), weft.__config__.show()
q, k, v = weft.randn(3, 2, 4, 33, 16)
attend = weft.compile(nn.functional.scaled_dot_product_attention)
interpreted, compiled = [attend(q, k, v).numpy() for _ in range(2)]
assert abs(interpreted - compiled).max() < 1e-5
assert weft.explain()[-1].native == count, weft.explain()
print(f"native kernels: {words}; they compute {count} operators of attention")
"""


def main() -> None:
    for old in built():
        old.unlink()
    pythons = [path for version in VERSIONS if (path := shutil.which(f"python{version}"))]
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(DIST), str(ROOT))
    (archive,) = DIST.glob("weft-*.tar.gz")
    look_into_archive(archive)
    for python in filter(is_there, pythons):
        with tempfile.TemporaryDirectory() as folder:
            environment = Path(folder, "env")
            run(python, "-m", "venv", str(environment))
            wheel = wheel_of(ROOT, environment, Path(folder))
            look_into_wheel(wheel)
            try_wheel(wheel, environment, Path(folder))
            try_as_torch(wheel_of(ROOT / "as_torch", environment, Path(folder)), environment, Path(folder))
    print(f"{', '.join(path.name for path in built())} are in {DIST.name}/")


def built() -> list[Path]:
    """What is there of this script's."""
    return sorted(
        path for pattern in ("weft-*.whl", "weft-*.tar.gz", "torch-*+weft.*.whl") for path in DIST.glob(pattern)
    )


def wheel_of(project: Path, environment: Path, folder: Path) -> Path:
    """Build a wheel by an environment's Python."""
    known = set(folder.glob("*.whl"))
    run(*pip(environment, "wheel"), "--no-deps", "--wheel-dir", str(folder), str(project))
    (wheel,) = set(folder.glob("*.whl")) - known
    return Path(shutil.copy(wheel, DIST))


def is_there(python: str) -> bool:
    """Whether a command is a Python, and not a stand-in for one that is not installed."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def pip(environment: Path, command: str) -> list[str]:
    """The beginning of a command of an environment's pip."""
    return [str(environment / "bin" / "pip"), command, "--quiet", "--disable-pip-version-check"]


def look_into_wheel(wheel: Path) -> None:
    """Refuse a wheel with other files than the package's, the stubs that its build writes, and the extension."""
    known = {name.removeprefix("src/") for name in known_to_git("src")}
    files = files_in(wheel)
    extensions = {name for name in files if name.startswith("weft/_native.") and ".so" in name}
    if len(extensions) != (native.compiler() is not None):
        raise SystemExit(f"the wheel has {len(extensions)} extensions")
    require_same("the wheel", files - extensions, known | {f"weft/{name}" for name in path_stubs.stubs()})


def files_in(wheel: Path) -> set[str]:
    """The names of a wheel's files, without what describes the wheel; printed is how many they are."""
    with zipfile.ZipFile(wheel) as opened:
        found = {name for name in opened.namelist() if ".dist-info/" not in name}
    print(f"{wheel.name}: {len(found)} files, {wheel.stat().st_size / 1e6:.1f} MB")
    return found


def look_into_archive(archive: Path) -> None:
    """Refuse a source archive with other files than git knows."""
    with tarfile.open(archive) as opened:
        found = {member.name.partition("/")[2] for member in opened.getmembers() if member.isfile()}
    require_same("the source archive", found - {"PKG-INFO"}, known_to_git())
    print(f"{archive.name}: {len(found)} files, {archive.stat().st_size / 1e6:.1f} MB")


def known_to_git(*folders: str) -> set[str]:
    """The files in these folders that git knows."""
    command = ["git", "ls-files", "--", *folders]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def require_same(what: str, found: set[str], expected: set[str]) -> None:
    if stray := sorted(found - expected):
        raise SystemExit(f"{what} has files that git does not know; add or remove them: {', '.join(stray[:20])}")
    if missing := sorted(expected - found):
        raise SystemExit(f"{what} lacks {', '.join(missing[:20])}")


def try_wheel(wheel: Path, environment: Path, folder: Path) -> None:
    """Install the wheel and its dependencies, and use it outside of this folder."""
    python = [str(environment / "bin" / "python"), "-I", "-c"]
    run(*pip(environment, "install"), str(wheel))
    run(*python, STEP, cwd=folder)
    run(*python, KERNELS, *(("in use", "1") if native.compiler() else ("not built", "0")), cwd=folder)
    run(str(environment / "bin" / "weft"), "run", "--help", cwd=folder, quiet=True)
    run(str(environment / "bin" / "weft"), "-c", CHILD, cwd=folder)


def try_as_torch(wheel: Path, environment: Path, folder: Path) -> None:
    """Refuse a wheel with more than the package `torch`, and use it where Weft is installed."""
    require_same("the wheel of as_torch", files_in(wheel), {"torch/__init__.py"})
    run(*pip(environment, "install"), str(wheel))
    run(str(environment / "bin" / "python"), "-I", "-c", ALONE, cwd=folder)
    run(str(environment / "bin" / "torchrun"), "--help", cwd=folder, quiet=True)
    run(str(environment / "bin" / "weft"), "-c", CHILD, cwd=folder)


def run(*command: str, cwd: Path = ROOT, quiet: bool = False) -> None:
    """Run a command, which must succeed; a quiet one must say something, and it is not shown."""
    shown = " ".join(part for part in command if "\n" not in part)
    print(f"$ {shown}", flush=True)
    done = subprocess.run(command, cwd=cwd, check=True, text=True, stdout=subprocess.PIPE if quiet else None)
    if quiet and not done.stdout.strip():
        raise SystemExit(f"{shown} printed nothing")


if __name__ == "__main__":
    main()
