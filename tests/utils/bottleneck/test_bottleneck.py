"""What `python -m weft.utils.bottleneck` says of programs that are bound by one thing."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.forked import ran
from tests.utils.bottleneck.programs import A_RANK_FAILS, PROGRAMS, TWO_RANKS, WORKERS

COMMAND = [sys.executable, "-m", "weft.utils.bottleneck"]
AUTO = {**os.environ, "WEFT_TIER": "auto", "WEFT_COMPILE_CACHE": ""}  # as for a user, each time anew


def report(folder, text, *options, args=()):
    script = folder / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [*COMMAND, *options, str(script), *args], env=AUTO, text=True, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("cause", PROGRAMS)
def test_the_cause_is_named(tmp_path, cause):
    text = report(tmp_path, PROGRAMS[cause], "--once")
    (named,) = re.findall(r"^The program is bound by (.*)$", text, re.MULTILINE)
    assert named.startswith(cause)
    assert re.search(r"\b[Tt]ry:? ", text)
    if cause == "compilation":
        assert re.search(r"script\.py:10: 8 times, the last one since: \S+ size is \(10, 8\)", text)
    if cause == "computation":
        assert re.search(r"^  aten::matmul: \S+ ms, 80 times$", text, re.MULTILINE)


def test_a_report_has_its_parts_in_order(tmp_path):
    text = report(
        tmp_path, "import sys\nimport weft\nprint(sys.argv[1:], weft.ones(3).sum().item())\n", args=["-x", "1"]
    )
    assert text.count("['-x', '1'] 3.0") == 2  # the script has run twice
    titles = re.findall(r"^-{80}\n  (.*)\n", text, re.MULTILINE)
    assert titles == [
        *("Environment Summary", "cProfile output", "autograd profiler output", "Time by phase", "Bottleneck"),
    ]
    assert "tottime" in text
    assert "Self CPU time total" in text


def test_scripts_that_end_themselves_and_scripts_that_are_not_there(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, weft\nweft.ones(2).tolist()\nsys.exit(3)\n")
    done = ran([*COMMAND, str(script)])
    assert done.returncode == 3
    assert "The program is bound by" in done.stdout
    done = ran([*COMMAND, str(tmp_path / "other.py")])
    assert done.returncode == 2
    assert "there is no script" in done.stderr
    script.write_text("import weft\nweft.ones(2) @ weft.ones(3)\n")
    done = ran([*COMMAND, str(script)])
    assert done.returncode in (1, 3), done.stderr
    assert "inconsistent tensor size" in done.stderr
    assert "The program is bound by" in done.stdout  # what was noted until then


@pytest.mark.soak
def test_workers_find_the_classes_of_the_script(tmp_path):
    text = report(tmp_path, WORKERS, "--once")
    assert "The program is bound by data" in text


@pytest.mark.slow
def test_one_report_for_all_ranks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TWO_RANKS)
    launcher = [sys.executable, "-m", "weft.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = ran([*launcher, "-m", "weft.utils.bottleneck", str(script)])
    assert done.returncode == 0, done.stderr
    titles = re.findall(r"^-{80}\n  (.*)\n", done.stdout, re.MULTILINE)
    assert titles[-3:] == ["Time by phase, rank 0", "Time by phase, rank 1", "Bottleneck"]
    assert titles.count("Bottleneck") == 1
    verdict = done.stdout.rpartition("  Bottleneck\n")[2].splitlines()[1:]
    assert verdict[0].startswith("The others wait for rank 1: it spent ")
    assert verdict[1].startswith("Rank 1 is bound by Python: ")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "ends"])
def test_a_rank_that_fails_releases_the_others_and_there_is_a_report(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(A_RANK_FAILS)
    launcher = [sys.executable, "-m", "weft.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = ran([*launcher, "-m", "weft.utils.bottleneck", str(script), how])
    assert done.returncode in (1, 3), done.stderr
    titles = re.findall(r"^-{80}\n  (.*)\n", done.stdout, re.MULTILINE)
    assert titles[-3:] == ["Time by phase, rank 0", "Time by phase, rank 1", "Bottleneck"]
    assert "rank 0: the script has failed: DistBackendError" in done.stderr
    assert "rank 1 has left the group" in done.stderr
    assert ("rank 1: the script has failed: ValueError: on purpose" in done.stderr) == (how == "raises")
