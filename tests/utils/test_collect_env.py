"""The report about a machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import weft
from weft._base.environment import is_setting
from weft.utils import collect_env

FOUND = collect_env.SystemEnv(
    weft_version="0.1",
    jax_version="0.10.2",
    jaxlib_version="0.10.1",
    numpy_version="2.4",
    os="Debian 12 (x86_64)",
    libc_version="glibc-2.36",
    gcc_version="gcc 12.2",
    clang_version=None,
    python_version="3.11.7 (64-bit runtime)",
    python_platform="Linux-6",
    devices=["cuda:0 H100", "cuda:1 H100"],
    nvidia_driver_version="550.1",
    cpu_model="A {fine} CPU",
    cpu_count=8,
    memory_bytes=12 * 2**30,
    environment=["XLA_FLAGS=--a --b"],
    pip_packages=["jax==0.10.2", "numpy==2.4"],
)

REPORT = """\
Weft version: 0.1
JAX version: 0.10.2
jaxlib version: 0.10.1
NumPy version: 2.4

OS: Debian 12 (x86_64)
Libc version: glibc-2.36
GCC version: gcc 12.2
Clang version: Could not collect

Python version: 3.11.7 (64-bit runtime)
Python platform: Linux-6
Nvidia driver version: 550.1

CPU: A {fine} CPU
CPU(s): 8
Memory: 12.0 GiB

Devices:
cuda:0 H100
cuda:1 H100

Environment:
XLA_FLAGS=--a --b

Versions of relevant libraries:
[pip3] jax==0.10.2
[pip3] numpy==2.4"""


def test_the_report_says_what_was_found():
    assert collect_env.pretty_str(FOUND) == REPORT


def test_the_report_says_what_was_not_found():
    bare = FOUND._replace(devices=None, memory_bytes=None, cpu_model=None, environment=[], pip_packages=[])
    report = collect_env.pretty_str(bare)
    assert "\nCPU: Could not collect\nCPU(s): 8\nMemory: Could not collect\n\nDevices:\nCould not collect\n" in report
    assert report.endswith("\nEnvironment:\nNone set\n\nVersions of relevant libraries:\nNo relevant packages")


def test_this_machine_is_looked_at(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    monkeypatch.setenv("SOMETHING_XLA_", "secret")
    found = collect_env.get_env_info()
    assert (found.weft_version, found.jax_version) == (weft.version.weft, jax.__version__)
    assert found.devices == [f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()]
    assert "XLA_FLAGS=--xla_dump_to=/tmp/x" in found.environment
    assert not [line for line in found.environment if "secret" in line]
    assert f"jax=={jax.__version__}" in found.pip_packages
    assert found.memory_bytes > 0
    assert found.cpu_count > 0


@pytest.mark.parametrize(
    "name",
    [
        "WEFT_JOB_KEY",
        "WEFT_API_TOKEN",
        "JAX_my_secret",
        "XLA_PASSWORD",
        "WEFT_CREDENTIALS",
        "WEFT_PASSPHRASE",
        "WEFT_PWD",
        "XLA_CRED",
        "JAX_AUTH",
        "WEFT_COOKIE",
        "XLA_SIGNING",
        "JAX_BEARER",
        "WEFT_DSN",
        "XLA_PIN",
        "JAX_SESSION",
        "XLA_FLAGS_",
        "WEFT_",
    ],
)
def test_values_of_unknown_variables_are_not_shown(name, monkeypatch):
    monkeypatch.setenv(name, "do not tell")
    report = collect_env.get_pretty_env_info()
    assert f"{name}=<redacted>\n" in report
    assert "do not tell" not in report


def test_names_and_passwords_in_addresses_are_not_shown(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "http://user:do-not-tell@host:80/path?token=no&x=1, http://a#no")
    monkeypatch.setenv("WEFT_HOME", "//user:do-not-tell@host/x")
    monkeypatch.setenv("WEFT_COMPILE_CACHE", "user:do-not-tell@host:33 https://u:do-not-tell@h/x;do-not-tell")
    report = collect_env.get_pretty_env_info()
    assert "JAX_COORDINATOR_ADDRESS=http://<redacted>@host:80/path?<redacted>, http://a#<redacted>\n" in report


def test_all_variables_of_this_package_are_known():
    """A new one has to be put among those that are shown, unless it holds a secret."""
    sources = Path(weft.__file__).parent.rglob("*.py")
    names = {name for path in sources for name in re.findall(r'"(WEFT_[A-Z_]+)"', path.read_text("utf-8"))}
    assert {name for name in names if not is_setting(name)} == {"WEFT_JOB_KEY", "WEFT_JOB_KEY_FILE"}


def test_missing_and_failing_tools_are_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    broken = tmp_path / "gcc"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    found = collect_env.get_env_info()
    assert (found.gcc_version, found.clang_version, found.nvidia_driver_version) == (None, None, None)
    tool = tmp_path / "clang"
    tool.write_text("#!/bin/sh\necho clang 19\necho more\n")
    tool.chmod(0o755)
    assert collect_env.get_env_info().clang_version == "clang 19"


@pytest.mark.slow
def test_it_is_a_command():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "weft.utils.collect_env"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"Collecting environment information...\nWeft version: {weft.version.weft}\n")
    assert done.stderr == ""
