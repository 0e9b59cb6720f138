"""Which APIs a process uses, told once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

import weft
from weft import monitor

PROGRAM = """
import weft as torch
from weft.utils.data import DataLoader
torch.nn.Linear(2, 2); torch.nn.Linear(2, 2)
torch.optim.SGD([torch.zeros(1)], lr=1)
DataLoader([1]); DataLoader([2])
torch._C._log_api_usage_once("my.api"); torch._C._log_api_usage_once("my.api")
"""


@pytest.mark.parametrize(("value", "told"), [("1", True), ("", False)])
def test_the_environment_asks_for_lines_on_stderr(value, told):
    environment = {**os.environ, "PYTORCH_API_USAGE_STDERR": value}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    keys = ("torch.python.import", "python.nn_module", "python.optimizer", "python.data_loader", "my.api")
    lines = [f"PYTORCH_API_USAGE {key}" for key in keys] if told else []
    assert [line for line in done.stderr.splitlines() if "API_USAGE" in line] == lines


@pytest.fixture
def keys():
    found = []
    monitor.set_api_usage_handler(found.append)
    yield found
    monitor.set_api_usage_handler(None)


def test_a_handler_is_told_of_earlier_uses_too(keys):
    assert keys[0] == "torch.python.import"
    assert "tests.first" not in keys
    monitor.log_api_usage_once("tests.first")
    weft._C._log_api_usage_once("tests.first")
    assert keys.count("tests.first") == 1
    again = []
    monitor.set_api_usage_handler(again.append)
    assert again == keys


def test_a_handler_is_a_function():
    with pytest.raises(TypeError, match="expected a function of a key, or None, got 3"):
        monitor.set_api_usage_handler(3)


def test_public_functions_name_themselves(keys, tmp_path):
    weft.save({}, tmp_path / "file")
    weft.load(tmp_path / "file")
    weft.compile(lambda x: x)
    assert {"torch.save", "torch.load", "torch.compile"} <= set(keys)


@pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")
def test_quantization_names_its_functions(keys):
    quantization = weft.ao.quantization
    model = weft.nn.Sequential(weft.nn.Linear(2, 2))
    quantization.quantize_dynamic(model)
    weft.ao.ns._numeric_suite.get_logger_dict(model)
    model.qconfig = quantization.get_default_qat_qconfig()
    quantization.prepare_qat(model.train())
    functions = {"quantize.quantize_dynamic", "quantize.convert", "quantize.prepare_qat", "quantize.prepare"}
    wanted = {f"quantization_api.{function}" for function in (*functions, "_numeric_suite.get_logger_dict")}
    assert wanted <= set(keys)


def test_a_handler_that_fails_is_logged(keys, caplog):
    def fails(key):
        raise KeyError(key)

    monitor.set_api_usage_handler(None)
    with caplog.at_level(logging.WARNING):
        monitor.set_api_usage_handler(fails)
        monitor.log_api_usage_once("tests.failing")
    assert "the handler of API usage has failed for tests.failing" in [record.message for record in caplog.records]
