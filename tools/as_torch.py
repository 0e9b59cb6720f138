"""`make as-torch`: move a project that is written for PyTorch into a new environment with Weft, as the README says.

An environment is made under `build/`, and Weft, the distribution in `as_torch/`, a project of `tests/as_torch/` and the
libraries that it requires are installed with one command. PyTorch must not be among what was installed, and the
project must run without a word of Weft: as scripts, by console scripts, tests and launchers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "tests" / "as_torch" / "project"
ENVIRONMENT = ROOT / "build" / "as_torch"
CHECKS = """
import importlib.metadata, torch, weft
assert torch is weft, torch
version = importlib.metadata.version("torch")
assert version == torch.__version__, version
names = {found.name for found in importlib.metadata.distributions()}
assert not [name for name in names if name == "triton" or name.startswith("nvidia")], names
"""
COMMANDS = [
    ["pip", "check"],
    ["python", "-c", CHECKS],
    ["python", "squares.py"],
    ["python", "-m", "squares", "--context", "forkserver"],
    ["squares", "--context", "spawn"],
    ["pytest", "-q", "checks.py"],
    ["accelerate", "env"],
    ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "with_accelerate.py"],
    ["torchrun", "--nproc-per-node", "2", "with_accelerate.py"],
    ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "with_accelerate.py"],
    ["fabric", "run", "--accelerator", "cpu", "--devices", "2", "with_accelerate.py"],
    ["python", "with_lightning.py"],
    ["python", "with_transformers.py"],
]


def main() -> None:
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(shutil.copytree(PROJECT, Path(folder, "project")))
        install = ["pip", "install", "--quiet", "--disable-pip-version-check"]
        run(*install, ".", "./as_torch", str(project), "pytest", cwd=ROOT)
        for command in COMMANDS:
            run(*command, cwd=project)
    print(f"A project written for PyTorch runs on Weft in {ENVIRONMENT}")


def run(program: str, *arguments: str, cwd: Path) -> None:
    """Run a program of the environment, which must succeed."""
    settings = {"ACCELERATE_USE_CPU": "1", "TOKENIZERS_PARALLELISM": "false"}
    print(f"$ {' '.join([program, *(part for part in arguments if chr(10) not in part)])}", flush=True)
    subprocess.run([ENVIRONMENT / "bin" / program, *arguments], cwd=cwd, env=os.environ | settings, check=True)


if __name__ == "__main__":
    main()
