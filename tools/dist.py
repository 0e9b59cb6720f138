"""`make dist`: build the wheel and the source archive, look at what they hold, and try the wheel where nothing else is.

The wheel must hold the files of the package that git knows, and no others; the source archive all files that git knows,
so tests and documentation too. The wheel is then installed in an environment of its own, in a temporary folder.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
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


def main() -> None:
    for old in [*DIST.glob("weft-*.whl"), *DIST.glob("weft-*.tar.gz")]:
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    (wheel,), (archive,) = DIST.glob("weft-*.whl"), DIST.glob("weft-*.tar.gz")
    look_into_wheel(wheel)
    look_into_archive(archive)
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder))
    print(f"{wheel.name} and {archive.name} are in {DIST.name}/")


def look_into_wheel(wheel: Path) -> None:
    """Refuse a wheel with other files than the package's."""
    with zipfile.ZipFile(wheel) as opened:
        found = {name for name in opened.namelist() if ".dist-info/" not in name}
    expected = {name.removeprefix("src/") for name in known_to_git("src")}
    require_same("the wheel", found, expected)
    print(f"{wheel.name}: {len(found)} files, {wheel.stat().st_size / 1e6:.1f} MB")


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


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel and its dependencies, and use it outside of this folder."""
    venv.create(folder / "env", with_pip=True)
    tools = folder / "env" / "bin"
    run(str(tools / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel))
    run(str(tools / "python"), "-I", "-c", STEP, cwd=folder)
    run(str(tools / "weft"), "run", "--help", cwd=folder, quiet=True)
    run(str(tools / "weft"), "-c", "import torch, weft; assert torch is weft", cwd=folder)


def run(*command: str, cwd: Path = ROOT, quiet: bool = False) -> None:
    """Run a command, which must succeed; a quiet one must say something, and it is not shown."""
    shown = " ".join(part for part in command if "\n" not in part)
    print(f"$ {shown}", flush=True)
    done = subprocess.run(command, cwd=cwd, check=True, text=True, stdout=subprocess.PIPE if quiet else None)
    if quiet and not done.stdout.strip():
        raise SystemExit(f"{shown} printed nothing")


if __name__ == "__main__":
    main()
