"""Sections that signals do not interrupt."""
# ruff: noqa: PT012  what happens within a section is what is tested

import _thread
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from weft._base.interrupts import PATIENCE, uninterrupted


class TimedOut(Exception):
    """What a handler of this file raises."""


def timed_out(number, frame):
    raise TimedOut(number)


@pytest.fixture
def handler():
    """A handler of SIGUSR1 that raises."""
    before = signal.signal(signal.SIGUSR1, timed_out)
    yield timed_out
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_is_handled_at_the_end_of_the_section():
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted:
        os.kill(os.getpid(), signal.SIGINT)
        _thread.interrupt_main()
        reached.append("the end")
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_all_signals_wait_and_what_they_raise_is_raised(handler):
    with pytest.raises(TimedOut), uninterrupted:
        os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_the_same_signal_is_handled_once_however_often_it_came():
    numbers = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: numbers.append(number))
    with uninterrupted:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert not numbers
    signal.signal(signal.SIGUSR1, before)
    assert numbers == [signal.SIGUSR1]


def test_two_signals_are_both_handled(handler):
    with pytest.raises(TimedOut) as caught, uninterrupted:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGUSR1)
    assert isinstance(caught.value.__context__, KeyboardInterrupt)


def test_the_inner_of_two_sections_ends_nothing():
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted:
        with uninterrupted:
            os.kill(os.getpid(), signal.SIGINT)
        reached.append("after the inner one")
    assert reached


def test_an_error_in_the_section_is_the_context_of_the_interrupt():
    with pytest.raises(KeyboardInterrupt) as caught, uninterrupted:
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("within")
    assert isinstance(caught.value.__context__, ValueError)


def test_poll_handles_what_has_come():
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted:
        uninterrupted.poll()
        os.kill(os.getpid(), signal.SIGINT)
        uninterrupted.poll()
        reached.append("too far")
    assert not reached


def test_an_extension_is_not_ended_by_what_was_to_end_an_earlier_one():
    """A training step is one extension, and the thread that is to end it wakes up some steps later."""
    uninterrupted.extend()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        earlier = uninterrupted._extended
        uninterrupted.end_extension()
    uninterrupted.extend()
    assert not uninterrupted.set_overdue(earlier)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        uninterrupted.end_extension()


def test_a_second_signal_ends_an_extension_that_is_overdue():
    uninterrupted.extend()
    signal.raise_signal(signal.SIGINT)
    assert uninterrupted.set_overdue(uninterrupted._extended)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not uninterrupted._extended


@pytest.mark.slow  # it waits for PATIENCE
def test_an_extension_of_a_program_that_only_waits_is_ended():
    uninterrupted.extend()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        signal.sigtimedwait([], 60)


def test_a_wait_is_not_cut_off_by_a_signal_that_came_long_before_it():
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), uninterrupted:
        signal.raise_signal(signal.SIGINT)
        uninterrupted.poll_waiting(started)
        assert uninterrupted.received
        uninterrupted.received[0] = (*uninterrupted.received[0][:2], started - PATIENCE)
        uninterrupted.poll_waiting(started)
        assert uninterrupted.received
        uninterrupted.poll_waiting(started - PATIENCE)


def test_a_suspended_section_is_interrupted_and_goes_on_afterwards():
    with uninterrupted:
        with pytest.raises(KeyboardInterrupt), uninterrupted.suspended():
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 60)  # is never reached
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_is_set_within_stays():
    before = signal.getsignal(signal.SIGUSR1)
    with uninterrupted:
        signal.signal(signal.SIGUSR1, timed_out)
    assert signal.getsignal(signal.SIGUSR1) is timed_out
    signal.signal(signal.SIGUSR1, before)


def test_other_threads_have_no_sections():
    found = []

    def run():
        with uninterrupted:
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_the_child_of_a_thread_that_forks_while_another_is_in_a_section_can_be_interrupted():
    program = """
        import os, signal, threading
        from weft._base.interrupts import PATIENCE, uninterrupted
        inside, forked, statuses = threading.Event(), threading.Event(), []
        def fork():
            inside.wait()
            pid = os.fork()
            if not pid:
                os._exit(0 if signal.getsignal(signal.SIGINT) is signal.default_int_handler else 1)
            statuses.append(os.waitpid(pid, 0)[1])
            forked.set()
        threading.Thread(target=fork).start()
        with uninterrupted:
            inside.set()
            forked.wait()
        print(statuses)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "[0]\n", ran.stderr


def test_an_interrupt_that_python_would_ignore_comes_a_moment_later():
    program = """
        import gc, os, signal, sys
        import weft
        weft.ones(1).item()
        class Fatal:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(10):
                    pass
        caught = 0
        for _ in range(20):
            try:
                Fatal()
                signal.sigtimedwait([], 60)  # which a signal ends
            except KeyboardInterrupt:
                caught += 1
        print(caught)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("20\n", "")


def test_an_interrupt_while_jax_is_imported_comes_after_the_import():
    program = """
        import os, signal, sys
        import weft
        class Watch:
            def find_spec(self, name, path=None, target=None):
                if name == "jaxlib.xla_client":
                    sys.meta_path.remove(self)
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Watch())
        try:
            weft.ones(3).sum().item()
        except KeyboardInterrupt:
            print("caught")
        print(weft.ones(3).sum().item())
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "caught\n3.0\n", ran.stderr


def test_the_handler_of_the_signal_that_was_ignored_is_called_again():
    program = """
        import os, signal
        import weft
        weft.ones(1).item()
        class TimedOut(KeyboardInterrupt):
            pass
        def on_alarm(number, frame):
            raise TimedOut("late")
        signal.signal(signal.SIGALRM, on_alarm)
        class Fatal:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGALRM)
                for _ in range(10):
                    pass
        try:
            Fatal()
            signal.sigtimedwait([], 60)
        except TimedOut as error:
            print(error)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("late\n", "")
