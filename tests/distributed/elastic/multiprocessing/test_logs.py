"""Where output goes, and how it is shown."""

from __future__ import annotations

import ctypes
import io
import os
import sys
from pathlib import Path

import pytest

from tests.distributed.elastic.multiprocessing import programs
from tests.waiting import until
from weft.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes, to_map
from weft.distributed.elastic.multiprocessing.redirects import redirect, redirect_stderr, redirect_stdout
from weft.distributed.elastic.multiprocessing.tail_log import TailLog
from weft.errors import DistError


def test_streams_are_read_from_text():
    assert Std.from_str("0") is Std.NONE
    assert Std.from_str("3") is Std.ALL
    assert Std.from_str("0:1,11:2") == {0: Std.OUT, 11: Std.ERR}
    assert to_map(Std.OUT, 2) == {0: Std.OUT, 1: Std.OUT}
    assert to_map({1: Std.ERR}, 2) == {0: Std.NONE, 1: Std.ERR}


@pytest.mark.parametrize("text", ["", "4", "0:4", "0:1,", "a:1", "0:1;1:2"])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match=r"does not match: <\^\[0123\]\$> or <"):
        Std.from_str(text)


def run(function, args, **options):
    return start_processes("t", function, args, {rank: {} for rank in args}, **options).wait(programs.DEADLINE)


def test_redirects_and_tee_by_rank(tmp_path, capfd):
    args = {0: ("zero",), 1: ("one",)}
    result = run(programs.say, args, log_dir=tmp_path, redirects=Std.ALL, tee={0: Std.ERR})
    files = {os.path.relpath(os.path.join(at, f), tmp_path) for at, _, fs in os.walk(tmp_path) for f in fs}
    assert files == {"0/stdout.log", "0/stderr.log", "1/stdout.log", "1/stderr.log"}
    assert Path(result.stdouts[0]).read_text() == "zero\n"
    assert Path(result.stderrs[1]).read_text() == "one err\n"
    out, err = capfd.readouterr()
    assert (out, err) == ("", "[t0]:zero err\n")


def test_prefixes_and_filters(tmp_path, capfd):
    specs = DefaultLogsSpecs(str(tmp_path), tee=Std.OUT, local_ranks_filter={1})
    context = start_processes(
        "t",
        "printf",
        {0: ("a\nb\nc",), 1: ("a\nb\nc",)},
        {0: {}, 1: {}},
        specs,
        {0: "[r0] ", 1: "[r1] "},
        duplicate_stdout_filters=["a", "c"],
    )
    result = context.wait(programs.DEADLINE)
    assert capfd.readouterr().out == "[r1] a\n[r1] b\n[r1] c\n"
    filtered = os.path.join(os.path.dirname(os.path.dirname(result.stdouts[1])), "filtered_stdout.log")
    assert Path(filtered).read_text() == "[r1] a\n[r1] c\n"


def test_more_output_than_a_pipe_holds(tmp_path, capfd):
    run(sys.executable, {0: ("-c", "for n in range(50_000): print(n)")}, log_dir=tmp_path, tee=Std.OUT)
    assert capfd.readouterr().out == "".join(f"[t0]:{n}\n" for n in range(50_000))


def test_a_folder_must_exist_and_be_empty(tmp_path):
    (tmp_path / "file").touch()
    for folder, kind, text in (
        (tmp_path / "none", FileNotFoundError, f"log_dir: {tmp_path}/none does not exist, please create it first"),
        (tmp_path / "file", NotADirectoryError, f"log_dir: {tmp_path}/file is a file"),
        (tmp_path, DistError, f"log_dir: {tmp_path} is not empty, please provide an empty log_dir"),
    ):
        with pytest.raises(kind) as caught:
            run("true", {0: ()}, log_dir=folder)
        assert str(caught.value) == text
    assert issubclass(DistError, RuntimeError)


def test_the_default_layout(tmp_path):
    specs = DefaultLogsSpecs(str(tmp_path / "logs"), redirects=Std.OUT)
    envs = {0: {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2"}}
    dest = specs.reify(envs)
    run_folder, attempt, rank, name = os.path.relpath(dest.stdouts[0], tmp_path / "logs").split(os.sep)
    assert run_folder.startswith("job_")
    assert (attempt, rank, name) == ("attempt_2", "0", "stdout.log")
    assert envs[0]["TORCHELASTIC_ERROR_FILE"] == dest.error_files[0]
    assert dest.error_files[0] == f"{tmp_path}/logs/{run_folder}/attempt_2/0/error.json"
    assert repr(specs) == (
        f"DefaultLogsSpecs(root_log_dir={tmp_path}/logs, redirects={Std.OUT}, tee={Std.NONE}, local_ranks_filter=None)"
    )
    assert specs == DefaultLogsSpecs(str(tmp_path / "logs"), redirects=Std.OUT)
    assert specs != DefaultLogsSpecs(str(tmp_path / "logs"))


def test_no_files_at_all(capfd):
    result = run(programs.say, {0: ("text",)}, logs_specs=DefaultLogsSpecs(os.devnull, tee=Std.ALL))
    assert result.stdouts == {0: ""}
    assert capfd.readouterr().out == "text\n"


def test_lines_are_shown_while_they_are_written(tmp_path):
    shown, log = io.StringIO(), tmp_path / "log"
    tail = TailLog("w", {3: str(log)}, shown, interval_sec=0.001).start()
    try:
        with log.open("w") as file:
            file.write("one\ntw")
            file.flush()
            until(lambda: shown.getvalue() == "[w3]:one\n", "the first line")
            file.write("o\n10%\r20%\nrest")
            file.flush()
            until(lambda: shown.getvalue() == "[w3]:one\n[w3]:two\n[w3]:10%\n[w3]:20%\n", "whole lines")
    finally:
        tail.stop()
    assert tail.stopped()
    assert shown.getvalue().endswith("[w3]:rest\n")


def test_a_closed_console_ends_the_showing_only(tmp_path, caplog):
    console = io.StringIO()
    console.close()
    (tmp_path / "log").write_text("line\n")
    TailLog("w", {0: str(tmp_path / "log")}, console).start().stop()
    assert "the output of w is not shown any more: I/O operation on closed file" in caplog.text


def test_redirecting_this_process(tmp_path, capfd):
    with redirect_stdout(str(tmp_path / "out")), redirect_stderr(str(tmp_path / "err")):
        os.write(1, b"below Python\n")
        ctypes.CDLL(None).printf(b"by C\n")  # which holds it back
        os.write(2, b"too\n")
    os.write(1, b"after\n")
    assert (tmp_path / "out").read_text() == "below Python\nby C\n"
    assert (tmp_path / "err").read_text() == "too\n"
    assert capfd.readouterr().out == "after\n"


def test_there_are_two_streams_to_redirect(tmp_path):
    with pytest.raises(ValueError, match=r"^unknown standard stream <stdfoo>, must be one of"):
        redirect("stdfoo", str(tmp_path / "file")).__enter__()
