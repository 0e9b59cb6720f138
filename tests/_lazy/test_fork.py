"""Forks: a child of a process that has computed reads its values, and computes without XLA."""

import subprocess
import sys
import textwrap

import pytest

import weft

CHILD = """
    import multiprocessing

    import weft

    x = weft.arange(3.0) * 2
    {before}
    pending = x + 1


    def grad():
        w = x.detach().requires_grad_()
        (w * w).sum().backward()
        return w.grad


    def say(*calls):
        for call in calls:
            try:
                print(call())
            except RuntimeError as error:
                print(type(error).__name__, str(error)[:19].partition(":")[0])


    def child():
        fresh = weft.tensor([1, 2])
        say({calls})


    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    print(process.exitcode, pending.tolist())
"""


def outcome(*calls, before=""):
    """What a child that was forked after `before` prints of some calls, and then its parent."""
    program = textwrap.dedent(CHILD).format(calls=", ".join(f"lambda: {call}" for call in calls), before=before)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.compiled
def test_a_child_of_a_process_that_has_computed_computes():
    calls = ["(x + 1).tolist()", "pending.tolist()", "fresh.sum().item()", "weft.zeros(2).tolist()", "grad().tolist()"]
    printed = ["[1.0, 3.0, 5.0]", "[1.0, 3.0, 5.0]", "3", "[0.0, 0.0]", "[0.0, 4.0, 8.0]"]
    assert outcome(*calls, before="(x * 2).tolist()") == [*printed, "0 [1.0, 3.0, 5.0]"]


@pytest.mark.compiled
def test_a_child_draws_the_numbers_of_its_parent():
    drawn = "weft.rand(2, generator=weft.Generator().manual_seed(3))"
    here = weft.rand(2, generator=weft.Generator().manual_seed(3)).tolist()
    assert outcome(f"{drawn}.tolist()", before="(x * 2).tolist()")[0] == str(here)


@pytest.mark.compiled
def test_a_child_says_what_only_xla_can_do():
    printed = outcome("x.to('xla:1')", before="(x * 2).tolist()")
    assert printed == ["DeviceError XLA cannot run here", "0 [1.0, 3.0, 5.0]"]


@pytest.mark.compiled
def test_such_a_child_reads_what_was_computed_and_makes_tensors_of_data():
    printed = outcome("x.tolist()", "fresh.tolist()", "weft.tensor([3]).item()", before="x.tolist()")
    assert printed == ["[0.0, 2.0, 4.0]", "[1, 2]", "3", "0 [1.0, 3.0, 5.0]"]


def test_a_child_of_a_process_that_has_only_recorded_computes():
    assert outcome("pending.tolist()", "fresh.sum().item()") == ["[1.0, 3.0, 5.0]", "3", "0 [1.0, 3.0, 5.0]"]


STARTING = """
    import multiprocessing
    import threading
    import time

    import weft
    from weft._base.device import CPU
    from weft._lazy.runtime import has_started, jax_device

    x = weft.arange(3.0)
    start = threading.Thread(target=jax_device, args=(CPU,))
    start.start()
    end = time.monotonic() + 60
    while not has_started():
        assert time.monotonic() < end, "XLA does not start"
    process = multiprocessing.get_context("fork").Process(target=lambda: print((x * 2).sum().item()))
    process.start()
    process.join(60)
    start.join(60)
    assert process.exitcode == 0, process.exitcode
"""


def test_a_child_that_is_forked_while_xla_starts():
    code = textwrap.dedent(STARTING)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "6.0\n"), done.stderr


def test_a_fork_is_quiet_after_a_device_was_asked_for_that_is_not_there():
    """To ask jax for a GPU starts XLA, and so do questions whether there is one."""
    program = """
        import os

        import torch

        torch.cuda.is_available(), torch.accelerator.is_available()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    """
    command = [sys.executable, "-W", "always", "-m", "weft", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "os.fork()" not in done.stderr
