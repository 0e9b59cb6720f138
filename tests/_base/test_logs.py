"""Levels of logs, by calls in this process and by the environment of others."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import pytest

import weft
from weft._base import logs


@pytest.fixture(autouse=True)
def _restored():
    """Loggers of the package are left as Python makes them."""
    yield
    for name in logs._state.levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    if logs._state.handler is not None:
        logging.getLogger("weft").removeHandler(logs._state.handler)
        logging.getLogger("weft").propagate = True
    logs._state.handler, logs._state.levels = None, {}


def test_settings_have_signs_and_several_names():
    levels, unknown = logs.levels_in("+dtensor, distributed,-pp,recompiles,+inductor,weft.distributed.elastic")
    assert levels == {
        "weft.distributed.tensor": logging.DEBUG,
        "weft.distributed": logging.INFO,
        "weft._tools": logging.INFO,
        "weft._comm": logging.INFO,
        "weft.distributed.pipelining": logging.ERROR,
        logs.ARTIFACTS["recompiles"]: logging.DEBUG,
        "weft.distributed.elastic": logging.INFO,
    }
    assert unknown == ["inductor"]
    assert logs.levels_in("") == ({}, [])
    assert logs.levels_in("-all") == ({"weft": logging.ERROR}, [])


def test_levels_are_set_and_set_back():
    tensor, distributed = (logging.getLogger(name) for name in ("weft.distributed.tensor", "weft.distributed"))
    weft._logging.set_logs(dtensor=logging.DEBUG, distributed=logging.INFO)
    assert (tensor.getEffectiveLevel(), distributed.getEffectiveLevel()) == (logging.DEBUG, logging.INFO)
    weft._logging.set_logs(all=logging.ERROR, modules={"weft.distributed.tensor._plan": logging.INFO, "pp": 10})
    assert (tensor.getEffectiveLevel(), distributed.getEffectiveLevel()) == (logging.ERROR, logging.ERROR)
    assert logging.getLogger("weft.distributed.tensor._plan").getEffectiveLevel() == logging.INFO
    weft._logging.set_logs()
    assert tensor.getEffectiveLevel() == logging.WARNING
    assert len(logging.getLogger("weft").handlers) == 1


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"dtensor": 7}, r"Unrecognized log level for log dtensor: 7; it is one of logging\.DEBUG, "),
        ({"dtensor": True}, "Unrecognized log level for log dtensor: True"),
        ({"recompiles": 10}, "Expected bool to enable artifact recompiles, received 10"),
        ({"modules": {"inductor": 10}}, "unrecognized log or artifact name 'inductor'; there are all, distributed, "),
        ({"modules": {"weft.nowhere": 10}}, "unrecognized log or artifact name 'weft.nowhere'"),
    ],
)
def test_what_is_no_setting_is_refused_and_changes_nothing(settings, text):
    with pytest.raises(ValueError, match=text):
        weft._logging.set_logs(c10d=logging.DEBUG, **settings)
    assert logs._state.handler is None


def test_lines_tell_rank_level_time_process_and_place(monkeypatch):
    monkeypatch.setattr(logs._state, "rank", lambda: 3)
    formatter = logs._Formatter()
    record = logging.LogRecord("weft.x", logging.DEBUG, weft.__file__, 7, "one\n%s", ("two",), None)
    pattern = r"\[rank3\]:V\d{4} [\d:]{8}\.\d{6} \d+ weft/__init__\.py:7\] "
    assert [re.sub(pattern, "", line) for line in formatter.format(record).splitlines()] == ["one", "two"]
    monkeypatch.setattr(logs._state, "rank", lambda: None)
    record = logging.LogRecord(logs.ARTIFACTS["recompiles"], logging.INFO, __file__, 7, "text", (), None)
    assert re.fullmatch(r"I\d{4} .*test_logs\.py:7\] \[__recompiles\] text", formatter.format(record))


SCRIPT = """
import logging, weft
weft._logging.set_logs(all=logging.CRITICAL)
logging.getLogger("weft.distributed.tensor._plan").debug("a plan")
logging.getLogger("weft.distributed").info("no plan")
"""


def run_with(**variables):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_LOGS")} | variables
    return subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment)


def test_the_environment_holds_whatever_is_called():
    done = run_with(TORCH_LOGS="-dtensor", WEFT_LOGS="+dtensor")
    assert done.returncode == 0, done.stderr
    ignored, plan = done.stderr.splitlines()
    assert ignored.endswith("Using WEFT_LOGS environment variable for log settings, ignoring call to set_logs")
    assert plan.endswith("] a plan")


def test_unknown_names_are_an_error_except_where_they_may_be_those_of_pytorch():
    done = run_with(TORCH_LOGS="+inductor,+dtensor")
    assert done.returncode == 0, done.stderr
    assert "TORCH_LOGS has names that say nothing here: inductor\n" in done.stderr
    assert "] a plan\n" in done.stderr
    assert "no plan" not in done.stderr
    done = run_with(WEFT_LOGS="+inductor")
    assert done.returncode == 1
    assert "ValueRangeError: unrecognized log or artifact name 'inductor'; there are all, " in done.stderr
