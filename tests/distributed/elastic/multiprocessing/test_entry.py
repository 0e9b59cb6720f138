"""Programs that are run under the recorder see what plain Python shows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft

ENTRY = ("-m", "weft.distributed.elastic.multiprocessing._entry")
PROGRAM = """
import atexit, multiprocessing, pickle, sys
class Kind: pass
def double(x): return 2 * x
if __name__ == "__main__":
    atexit.register(lambda: print(pickle.loads(pickle.dumps(Kind())).__class__.__name__))
    print(__file__, sys.argv, sys.path[0], __package__, __spec__ and __spec__.name, sorted(globals()))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1]))
    exec(sys.argv[1])
"""


@pytest.fixture
def both(tmp_path):
    """Call it with arguments of `python`: the outcome with and without the recorder, and the error file."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "prog.py").write_text(PROGRAM)
    (tmp_path / "prog.py").write_text(PROGRAM)
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(weft.__file__).parents[1]),
        "TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json"),
    }

    def run(*args):
        runs = [
            subprocess.run([sys.executable, *first, *args], cwd=tmp_path, env=env, capture_output=True, text=True)
            for first in ((), ENTRY)
        ]
        plain, recorded = ((each.returncode, each.stdout, each.stderr) for each in runs)
        file = tmp_path / "error.json"
        return plain, recorded, json.loads(file.read_text())["message"] if file.exists() else None

    return run


@pytest.mark.parametrize("target", [("sub/prog.py",), ("-m", "prog")], ids=["script", "module"])
def test_a_program_sees_what_python_shows_it(both, target):
    plain, recorded, error = both(*target, "pass")
    assert plain == recorded
    assert error is None
    assert "[2]\nKind\n" in plain[1]


@pytest.mark.parametrize(
    ("code", "exit_code", "message"),
    [
        ("raise ValueError('bad')", 1, "ValueError: bad"),
        ("sys.excepthook = print; 1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("sys.exit('why')", 1, "SystemExit: why"),
        ("sys.exit(0)", 0, None),
    ],
)
def test_an_end_is_recorded(both, code, exit_code, message):
    plain, recorded, error = both("prog.py", code)
    addresses = re.compile(r"0x[0-9a-f]+")
    assert [addresses.sub("", str(each)) for each in plain] == [addresses.sub("", str(each)) for each in recorded]
    assert plain[0] == exit_code
    assert (error and error["message"]) == message
    if message:
        assert 'File "<string>", line 1' in error["extraInfo"]["py_callstack"]
        assert "_entry" not in error["extraInfo"]["py_callstack"]


def test_what_cannot_be_run_is_said(both):
    _, (code, _, text), _ = both("none.py")
    assert code == 2
    assert re.search(r"can't open file '.*/none.py': no such file\n$", text)
    _, (code, _, text), error = both("-m", "no_such_module")
    assert (code, error["message"]) == (1, f"SystemExit: {sys.executable}: No module named no_such_module")
    assert text == f"{sys.executable}: No module named no_such_module\n"
