"""Forks: a child of a process that has computed can read values and make some, and is told that it cannot compute."""

import subprocess
import sys
import textwrap

CHILD = """
    import multiprocessing

    import weft

    x = weft.arange(3.0) * 2
    {before}
    pending = x + 1


    def say(*calls):
        for call in calls:
            try:
                print(call())
            except RuntimeError as error:
                print(type(error).__name__, str(error)[:19])


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


REFUSED = "DeviceError cannot compute here"


def test_a_child_of_a_process_that_has_computed_is_told_at_once():
    calls = ["(x + 1).tolist()", "pending.tolist()", "fresh.sum().item()", "weft.zeros(2).tolist()", "(x * 2).tolist()"]
    assert outcome(*calls, before="(x * 2).tolist()") == [*[REFUSED] * 5, "0 [1.0, 3.0, 5.0]"]


def test_such_a_child_reads_what_was_computed_and_makes_tensors_of_data():
    printed = outcome("x.tolist()", "fresh.tolist()", "weft.tensor([3]).item()", before="x.tolist()")
    assert printed == ["[0.0, 2.0, 4.0]", "[1, 2]", "3", "0 [1.0, 3.0, 5.0]"]


def test_a_child_of_a_process_that_has_only_recorded_computes():
    assert outcome("pending.tolist()", "fresh.sum().item()") == ["[1.0, 3.0, 5.0]", "3", "0 [1.0, 3.0, 5.0]"]
