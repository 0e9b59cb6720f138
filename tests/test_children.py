"""Every process below one in which `torch` is Weft has it, too, however each of them is started.

A folder in PYTHONPATH has another `torch`, which stands for PyTorch: a process without the alias imports it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import children

PROGRAM = Path(children.__file__)
MAIN = "import children; children.main()"
NOTEBOOK = f"import weft; weft.as_torch(); {MAIN}"
FROM_TEXT = ("main", "torch.multiprocessing", *children.METHODS, "pool", *children.COMMANDS)
ENTRY_POINTS = {
    "weft script": ["-m", "weft", "children.py"],
    "weft -m": ["-m", "weft", "-m", "children"],
    "weft -c": ["-m", "weft", "-c", MAIN],
    "weft -": ["-m", "weft", "-"],
    "weft folder": ["-m", "weft", "folder"],
    "weft run": ["-m", "weft", "run", "children.py"],
    "weft run -m": ["-m", "weft", "run", "-m", "children"],
    "weft -m torch.distributed.run": ["-m", "weft", "-m", "torch.distributed.run", "children.py"],
    "python script": ["children.py"],
    "python -I": ["-I", "children.py"],
    "notebook": ["-c", NOTEBOOK],
}
INHERITING = ("weft run", "weft run -m", "python script", "python -I")
"""Entry points that do not say by themselves that `torch` is Weft: the environment does."""


@pytest.fixture
def python(tmp_path):
    """Runs Python where `torch` is a package that is not Weft."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    shutil.copy(PROGRAM, tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(f"if __name__ == '__main__':\n    {MAIN}\n")

    def run(*args, text=None, executable=sys.executable, **variables):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "WEFT_COMPILE_CACHE": "", **variables}
        done = subprocess.run(
            [executable, *args], cwd=tmp_path, env=environment, input=text, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def told(output):
    """The kinds of processes that have told of themselves, with the name of their `torch`."""
    return dict(line.rsplit(" ", 1) for line in output.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_children_of_every_kind_under_every_entry_point(python, entry):
    variables = {"WEFT_AS_TORCH": "1"} if entry in INHERITING else {}
    output = python(*ENTRY_POINTS[entry], text=MAIN, **variables)
    assert told(output) == dict.fromkeys(FROM_TEXT, "weft")


@pytest.mark.slow
@pytest.mark.parametrize("entry", [["-m", "weft"], ["-m", "weft", "-m", "torch.distributed.run"]])
def test_launchers_and_workers_that_compute(python, entry):
    output = python(*entry, "children.py", "computing")
    kinds = ["rank of torch.distributed.run", "rank of torchrun", "worker of a loader"]
    assert told(output) == dict.fromkeys(kinds, "weft")


@pytest.mark.parametrize(
    ("value", "name"), [("TRUE", "weft"), ("on", "weft"), ("yes", "weft"), ("no", "torch"), ("", "torch")]
)
def test_the_variable_takes_the_words_of_all_switches(python, value, name):
    program = "import weft_as_torch, sys; print(sum(isinstance(f, weft_as_torch.Finder) for f in sys.meta_path))"
    assert python("-c", program, WEFT_AS_TORCH=value) == f"{int(name == 'weft')}\n"


def test_a_wrong_value_is_one_sentence():
    command = [sys.executable, "-c", "print('runs')"]
    done = subprocess.run(
        command, env={**os.environ, "WEFT_AS_TORCH": "maybe"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "runs\n"
    assert done.stderr == (
        "WEFT_AS_TORCH=maybe: expected one of 1, true, on, yes, 0, false, off, no; torch is not Weft here\n"
    )


def test_children_without_the_alias(python):
    """The variable switches it off; Python without `site`, and other interpreters, have nothing of Weft."""
    program = "import os, subprocess, sys; subprocess.run(sys.argv[1:], check=True, env={**os.environ, %s})"
    says = ["-c", children.SAYS, "child"]

    def child(*command, changed=""):
        return told(python("-m", "weft", "-c", program % changed, *command))

    assert child(sys.executable, *says) == {"child": "weft"}
    assert child(sys.executable, *says, changed="'WEFT_AS_TORCH': '0'") == {"child": "torch"}
    assert child(sys.executable, "-S", *says) == {"child": "torch"}
    base = getattr(sys, "_base_executable", sys.executable)
    if sys.prefix != sys.base_prefix:
        assert child(base, *says) == {"child": "torch"}


def test_a_python_that_is_not_below_weft_has_nothing_of_it(python):
    assert python("-c", "import sys; print([m for m in sys.modules if 'weft' in m])") == "[]\n"


def test_children_import_nothing_of_weft_before_they_import_torch(python):
    """A resource tracker, or a tool, is as quick as without Weft, and pip sees the packages that are in its folders."""
    program = (
        "import sys\n"
        "assert [name for name in sys.modules if 'weft' in name] == ['weft_as_torch']\n"
        "assert 'typing' not in sys.modules\n"
        "import importlib.metadata\n"
        "in_folders = importlib.metadata.distributions(path=sys.path)\n"
        "assert not [found for found in in_folders if 'weft' in found.version.partition('+')[2]]\n"
        "print(importlib.metadata.version('torch').partition('+')[0])\n"
    )
    assert python("-c", program, WEFT_AS_TORCH="1") == "2.13.0\n"


def test_weft_that_is_not_installed_says_that_children_are_without_it(tmp_path):
    """Found by PYTHONPATH alone, it has no file that Python reads at its start."""
    base = getattr(sys, "_base_executable", sys.executable)
    if sys.prefix == sys.base_prefix:
        pytest.skip("needs an interpreter without Weft beside the one of the tests, such as that of their environment")
    done = subprocess.run(
        [base, "-m", "weft", "-c", "import torch; print(torch.__version__)"],
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[1] / "src")},
        capture_output=True,
        text=True,
    )
    assert "weft" in done.stdout
    assert "torch is Weft in this process, but not in those that it starts" in done.stderr
