"""The distribution in `as_torch/`: in an environment in which it is installed, `torch` is Weft without a word of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import weft
from tests import children

ROOT = Path(weft.__file__).parents[2]
SOURCE = ROOT / "as_torch"
PROJECT = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]

pytestmark = pytest.mark.slow


class Environment:
    """A virtual environment in which the packages of these tests can be imported, too."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.scripts = folder / "bin"
        self.python = str(self.scripts / "python")
        (self.packages,) = folder.glob("lib/python*/site-packages")
        outside = [str(ROOT / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        (self.packages / "outside.pth").write_text("\n".join(outside), encoding="utf-8")

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """What a command prints, which must succeed."""
        done = subprocess.run(command, cwd=cwd, env=plain(), capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """pip in this environment. It builds without a further environment, so it asks no index."""
        command = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", *arguments]
        return subprocess.run(command, env=plain() | {"PIP_NO_INDEX": "1"}, capture_output=True, text=True, timeout=200)

    def install(self) -> subprocess.CompletedProcess[str]:
        return self.pip("install", "--no-deps", "--no-build-isolation", str(SOURCE))

    def files(self) -> set[str]:
        return {path.name for path in self.packages.glob("torch*")} | {
            path.name for path in self.scripts.glob("torch*")
        }


def plain():
    """The environment's variables, without those by which these tests, or a machine, would tell of Weft."""
    variables = {name: value for name, value in os.environ.items() if name not in ("WEFT_AS_TORCH", "PYTHONPATH")}
    return variables | {"WEFT_COMPILE_CACHE": ""}


def wheel_of_pytorch(folder, version):
    """A wheel that has PyTorch's name, and stands for it."""
    path = folder / f"torch-{version}-py3-none-any.whl"
    about = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": "",
        "torch/_C.py": "",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"]))
    return str(path)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    made = Environment(tmp_path_factory.mktemp("environment"))
    done = made.install()
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_versions_agree():
    assert PROJECT["version"] == weft.__version__
    assert (
        PROJECT["requires-python"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    )
    assert f"weft=={weft.version.weft}" in PROJECT["dependencies"]


IDENTITIES = """
import importlib.metadata as metadata, importlib.util, os, sys
before = importlib.util.find_spec("torch")
assert before.origin == os.path.join(sys.argv[1], "torch", "__init__.py"), before
import torch.nn.functional as F
import torch, weft
assert torch is weft is sys.modules["torch"] and F is weft.nn.functional
assert torch.__file__ == weft.__file__ and torch.__path__ == weft.__path__
assert importlib.util.find_spec("torch.nn") is not None and importlib.util.find_spec("torch.nothing") is None
assert metadata.version("torch") == torch.__version__
assert len([found for found in metadata.distributions(name="torch") if "+weft" in found.version]) == 1
assert [need for need in metadata.requires("torch") if need.startswith("weft==")]
assert "WEFT_AS_TORCH" not in os.environ
"""


def test_what_programs_and_libraries_see(environment):
    environment.run(environment.python, "-c", IDENTITIES, str(environment.packages))


def test_every_kind_of_process(environment, tmp_path):
    """Without a variable, a command or a file that Python reads at its start."""
    output = environment.run(environment.python, shutil.copy(children.__file__, tmp_path))
    kinds = ("main", "torch.multiprocessing", *children.METHODS, "pool", *children.COMMANDS)
    assert dict(line.rsplit(" ", 1) for line in output.splitlines()) == dict.fromkeys(kinds, "weft")


def test_the_script_of_the_launcher(environment, tmp_path):
    program = shutil.copy(children.__file__, tmp_path)
    output = environment.run(str(environment.scripts / "torchrun"), program, "rank of torchrun")
    assert output == "rank of torchrun weft\n"


def test_a_process_that_does_not_import_it_has_nothing_of_weft(environment):
    assert (
        environment.run(environment.python, "-c", "import sys; print([m for m in sys.modules if 'weft' in m])")
        == "[]\n"
    )


def test_it_does_not_replace_pytorch(tmp_path):
    made = Environment(tmp_path / "environment")
    assert made.pip("install", wheel_of_pytorch(tmp_path, "2.13.0")).returncode == 0
    done = made.install()
    assert done.returncode == 1
    assert f"PyTorch 2.13.0 is installed in {made.packages}" in done.stdout + done.stderr
    assert made.files() == {"torch", "torch-2.13.0.dist-info"}
    assert made.run(made.python, "-c", "import torch; print(torch.__file__)") == f"{made.packages}/torch/__init__.py\n"


def test_the_way_back(tmp_path):
    """A later PyTorch replaces it, and nothing of Weft hides that."""
    made = Environment(tmp_path / "environment")
    assert made.install().returncode == 0
    own = f"torch-{weft.__version__}.dist-info"
    assert made.files() == {"torch", "torchrun", own}
    assert made.pip("install", "--upgrade", wheel_of_pytorch(tmp_path, "2.14.0")).returncode == 0
    assert made.files() == {"torch", "torch-2.14.0.dist-info"}
    assert made.run(made.python, "-c", "import torch; print(torch.__file__)") == f"{made.packages}/torch/__init__.py\n"


def test_files_of_pytorch_among_its_own(tmp_path):
    """They are there if one was installed over the other without pip's knowledge."""
    shutil.copytree(SOURCE / "src" / "torch", tmp_path / "torch")
    (tmp_path / "torch" / "lib").mkdir()
    (tmp_path / "torch" / "_C.so").touch()
    done = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env=plain() | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])},
        capture_output=True,
        text=True,
    )
    assert re.search(r"^ImportError: \S+/torch has files of PyTorch \(_C\.so, lib\)", done.stderr, re.MULTILINE)
