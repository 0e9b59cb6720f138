"""Programs that are written for `torch`: run by `weft`, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.torch_version import TorchVersion

ROOT = Path(weft.__file__).parents[2]
USAGE = "usage: weft SCRIPT [ARGS …]       run a script in which `torch` is Weft"


def run(*args, folder=ROOT, text=None, **variables):
    """How `weft ARGS` ends: its exit code, what it has printed, and the last line of its errors."""
    environment = {**os.environ, "WEFT_COMPILE_CACHE": "", "PYTHONPATH": str(ROOT / "src"), **variables}
    command = [sys.executable, "-m", "weft", *map(str, args)]
    done = subprocess.run(command, cwd=folder, env=environment, input=text, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def script(tmp_path):
    def write(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


IDENTITIES = """
import importlib.metadata, importlib.util, sys
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader
import weft
assert torch is weft and nn is weft.nn and F is weft.nn.functional and DataLoader is weft.utils.data.DataLoader
assert sys.modules["torch.nn"] is sys.modules["weft.nn"] and nn.__spec__.name == "weft.nn"
assert importlib.util.find_spec("torch.nothing") is None and importlib.util.find_spec("torch.nn") is not None
assert importlib.metadata.version("torch") == torch.__version__ == "2.13.0+weft." + torch.version.weft
assert importlib.metadata.packages_distributions()["torch"][0] == "torch"
assert not [name for name, module in sys.modules.items()
            if name.partition(".")[0] == "torch" and not module.__spec__.name.startswith("weft")]
print(sys.argv, __name__, F.relu(torch.tensor([-1.0, 2.0])).tolist())
"""


def test_torch_is_weft_throughout(script):
    path = script(IDENTITIES)
    assert run(path, "a") == (0, f"{[str(path), 'a']} __main__ [0.0, 2.0]\n", "")


def test_torch_is_weft_in_scripts_modules_and_code(script, tmp_path):
    text = "import sys, torch, weft; print(sys.argv, __name__, torch is weft)"
    path = script(text)
    for args, shown in (([path], str(path)), (["-m", "program"], str(path)), (["-c", text], "-c")):
        code, output, errors = run(*args, "a", "--b", folder=tmp_path)
        assert (code, output, errors) == (0, f"{[shown, 'a', '--b']} __main__ True\n", "")


def test_what_is_missing_is_named(script):
    path = script(
        "import torch\n"
        "for text in ('torch.softmx', 'torch.nn.Linar', 'torch.nn.functional.rellu', 'torch.zzzz'):\n"
        "    try:\n"
        "        eval(text)\n"
        "    except AttributeError as error:\n"
        "        print(error)\n"
        "for name in ('torch.utils.dta', 'torch.nothing_like_it'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
        "from torch.nn import Linar\n"
    )
    code, output, errors = run(path)
    assert output.splitlines() == [
        "module 'torch' has no attribute 'softmx': Weft does not have it; the nearest is 'softmax'",
        "module 'torch.nn' has no attribute 'Linar': Weft does not have it; the nearest is 'Linear'",
        "module 'torch.nn.functional' has no attribute 'rellu': Weft does not have it; the nearest is 'relu'",
        "module 'torch' has no attribute 'zzzz': Weft does not have it",
        "No module named 'torch.utils.dta': Weft does not have it; the nearest module is 'torch.utils.data'",
        "No module named 'torch.nothing_like_it': Weft does not have it",
    ]
    assert code == 1
    assert errors == (
        f'Traceback (most recent call last):\n  File "{path}", line 12, in <module>\n    from torch.nn import Linar\n'
        "ImportError: cannot import name 'Linar': module 'torch.nn' has no attribute 'Linar': Weft does not have it; "
        "the nearest is 'Linear'\n"
    )


def test_processes_that_a_program_starts_see_the_same(script):
    path = script(
        "import multiprocessing, sys\n"
        "import torch\n"
        "import torch.multiprocessing as mp\n"
        "def work(rank, queue):\n"
        "    queue.put((torch.__name__, rank, torch.ones(2).sum().item()))\n"
        "if __name__ == '__main__':\n"
        "    queue = mp.get_context('spawn').SimpleQueue()\n"
        "    mp.spawn(work, (queue,), nprocs=1)\n"
        "    print(queue.get())\n"
    )
    assert run(path) == (0, "('torch', 0, 2.0)\n", "")


def test_the_launcher_starts_such_programs(script):
    path = script("import os, sys, torch\nsys.stdout.write(torch.__name__ + ' ' + os.environ['RANK'] + '\\n')\n")
    code, output, _ = run("-m", "torch.distributed.run", "--nproc-per-node", 2, path)
    assert (code, sorted(output.splitlines())) == (0, ["torch 0", "torch 1"])


def test_it_is_too_late_where_pytorch_was_imported(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    program = "import torch, weft; weft.as_torch()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])},
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1] == (
        f"weft.errors.SettingError: torch has been imported already, from {tmp_path}/torch/__init__.py, so it cannot "
        "be Weft in this process; call weft.as_torch() before anything imports it (in a notebook: restart the kernel), "
        "or run `weft script.py`"
    )


def test_bad_command_lines(tmp_path):
    code, _, errors = run()
    assert (code, errors.splitlines()[0]) == (
        1,
        "usage: weft SCRIPT [ARGS …]       run a script in which `torch` is Weft",
    )
    code, _, errors = run("nothing.py", folder=tmp_path)
    assert code == 2
    assert errors.endswith(f"can't open file '{tmp_path}/nothing.py': no such file\n")
    assert run("--help")[0] == 0


def test_versions_compare():
    version = TorchVersion("2.13.0+weft.0.1.0")
    assert version > "2.9" and version >= (2, 13) and version < "2.14" and version != "2.13.0"  # noqa: PT018
    assert version == "2.13.0+weft.0.1.0"
    assert version.split("+")[0] == "2.13.0"
    assert version != "no version"
    with pytest.raises(TypeError):
        version < object()  # noqa: B015


def test_a_module_and_a_function_of_one_name():
    """The import of a module does not hide the function that its package has under this name."""
    lines = [
        "import torch.nn.utils.weight_norm",
        "from torch.nn.utils.spectral_norm import SpectralNorm",
        "print(callable(torch.nn.utils.weight_norm), callable(torch.nn.utils.spectral_norm), SpectralNorm.__name__)",
    ]
    assert run("-c", "\n".join(lines))[1] == "True True SpectralNorm\n"


def test_the_standard_input_is_a_program():
    text = "import sys, torch\nprint(sys.argv, torch.ones(2).sum().item())"
    assert run("-", "a", text=text)[1] == "['-', 'a'] 2.0\n"
