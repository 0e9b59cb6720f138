"""The loader's worker processes: what they do, and what is left when they or their parent end badly."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import select
import signal
import subprocess
import sys
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.utils.data.in_workers import Asked, Pids, Shared, fail_to_start, kept, say_hello
from weft._base import config
from weft.utils import data
from weft.utils.data._utils import worker as of_workers

SPAWN = multiprocessing.get_context("spawn")
SPAWNED = {"multiprocessing_context": SPAWN}
FORKED = {"multiprocessing_context": multiprocessing.get_context("forkserver")}  # in most tests: these import nothing
LINUX = sys.platform == "linux"


def children() -> int:
    """Processes that this one or the fork server has started and that are there."""
    known = len(multiprocessing.active_children())
    if not LINUX:
        return known
    return known + len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())  # of the thread of tests


def memory() -> list[str]:
    """Open files and mappings of shared memory."""
    if not LINUX:
        return []
    files = [name for entry in os.scandir("/proc/self/fd") if "weft-data" in (name := _target(entry.path))]
    return files + [line for line in Path("/proc/self/maps").read_text().splitlines() if "weft-data" in line]


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # the folder's own descriptor
        return ""


@pytest.fixture(autouse=True)
def nothing_left():
    resource_tracker.ensure_running()  # multiprocessing's own children, which stay
    forkserver.ensure_running()
    before = children()
    gc.freeze()  # so that the collection below looks at what the test has made
    yield
    assert children() == before
    gc.collect()  # XLA lets go of NumPy's memory when it is called next, or here
    assert memory() == []


def loader(asked, batch_size=None, **options):
    """A loader that asks for these samples in turn and hands over what workers find as it is."""
    named = {"num_workers": 2, "collate_fn": kept, **FORKED, **options}
    dataset = named.pop("dataset", None) or Asked()
    return data.DataLoader(dataset, batch_size, sampler=asked, **named)


def pids_of(batches):
    return [process.pid for process in batches._workers]


# --- batches ---


def test_workers_make_the_batches():
    asked = ["draws", "draws", "who", "who", "kinds", "initialised"]
    generator = weft.Generator().manual_seed(5)
    options = {"worker_init_fn": say_hello, "persistent_workers": True, "multiprocessing_context": None}
    found = loader(asked, generator=generator, **options)
    passes = [list(found), list(found)]
    check_kinds(passes[0][4])
    assert passes[0][5] == "hello from 1"
    expected = data.DataLoader([1], generator=weft.Generator().manual_seed(5))
    base_seeds = [iter(expected)._base_seed for _ in range(2)]
    assert base_seeds[0] != base_seeds[1]
    for base_seed, (*draws, first, second, _, _) in zip(base_seeds, passes, strict=True):
        assert first == (0, 2, base_seed, "Asked", "cpu")
        assert second == (1, 2, base_seed + 1, "Asked", "cpu")
        for worker, drawn in enumerate(draws):
            assert drawn == (
                random.Random(base_seed + worker).random(),
                np.random.RandomState(np.random.SeedSequence([base_seed, worker]).generate_state(4)).rand(),
                weft.rand(1, generator=weft.Generator().manual_seed(base_seed + worker)).item(),
            )


def check_kinds(found):
    assert found["tensor"].tolist() == [3, 4, 5]
    assert found["array"].tolist() == [7, 1, 2, 3]
    assert (found["array"].flags.writeable, found["odd"].dtype) == (True, np.dtype("bfloat16"))
    assert (found["half"].dtype, found["half"].tolist()) == (weft.bfloat16, [1, 1])
    assert found["empty"].shape == (0, 3)
    assert found["flags"].tolist() == [True, False]
    assert type(found["leaf"]) is weft.nn.Parameter
    assert (found["leaf"].requires_grad, found["leaf"].is_leaf, found["text"], found["none"]) == (
        True,
        True,
        "text",
        None,
    )


def test_batches_of_tensors_are_the_same_as_without_workers():
    pairs = data.TensorDataset(weft.arange(14.0).reshape(7, 2), weft.arange(7))
    with_workers, without = (
        data.DataLoader(pairs, 3, shuffle=True, generator=weft.Generator().manual_seed(1), **workers)
        for workers in ({"num_workers": 1, **FORKED}, {})
    )
    expected = [[entry.tolist() for entry in batch] for batch in without]
    found = list(with_workers)
    assert [[entry.tolist() for entry in batch] for batch in found] == expected
    assert [entry.dtype for entry in found[0]] == [weft.float32, weft.int64]


def test_the_order_is_kept_whatever_worker_is_faster():
    batches = iter(loader(["wait", "tell"], dataset=Asked(event=SPAWN.Event())))  # the first waits for the second
    pids = pids_of(batches)
    assert list(batches) == pids


def test_batches_may_come_as_they_are_ready():
    event = SPAWN.Event()
    batches = iter(loader(["wait", 7], dataset=Asked(event=event), in_order=False))
    first, _ = pids_of(batches)
    assert next(batches) == 7
    event.set()
    assert list(batches) == [first]


def test_iterable_datasets_are_shared_out():
    found = data.DataLoader(Shared(7), 2, num_workers=2, persistent_workers=True, **FORKED)
    for _ in range(2):
        assert [batch.tolist() for batch in found] == [[0, 2], [1, 3], [4, 6], [5]]


def test_batches_that_are_kept_stay_as_they_are():
    numbers = data.TensorDataset(weft.arange(40.0).reshape(20, 2))
    found = data.DataLoader(numbers, 2, num_workers=1, persistent_workers=True, **FORKED)
    kept = [[batch[0], batch[0].numpy()] for _ in range(2) for batch in found]
    for at, (tensor, array) in enumerate(kept):
        expected = [[4 * (at % 10) + 2 * row, 4 * (at % 10) + 2 * row + 1] for row in range(2)]
        assert tensor.tolist() == array.tolist() == expected
    del found
    assert (kept[0][0] + 1).tolist() == [[1, 2], [3, 4]]  # the workers are gone


def test_a_pass_that_is_left_is_forgotten():
    found = loader(range(8), num_workers=1, persistent_workers=True, prefetch_factor=3)
    assert next(iter(found)) == 0
    pids = pids_of(found._iterator)
    assert list(found) == [*range(8)]
    assert pids_of(found._iterator) == pids
    for number in found:  # the fixture sees that the worker ends with the loader
        if number == 3:
            break


# --- faults ---


def test_exceptions_of_workers_are_raised_here():
    asked = ["wrong_value", "wrong_key", "wrong_two", "wrong_batch", 5]
    batches = iter(loader(asked))
    with pytest.raises(ValueError, match=r"^Caught ValueError in DataLoader worker process 0.\nOriginal Tr") as caught:
        next(batches)
    assert "in wrong_value" in str(caught.value)
    assert str(caught.value).endswith("ValueError: no such sample\n")
    with pytest.raises(KeyError, match=r"^Caught KeyError in DataLoader worker process 1.\nOriginal"):
        next(batches)
    with pytest.raises(RuntimeError, match=r"^Caught TwoArguments in DataLoader worker process 0.\nOriginal"):
        next(batches)
    with pytest.raises(
        AttributeError, match=r"^Caught AttributeError in DataLoader worker (.|\n)*Can't (get|pickle) lo"
    ):
        next(batches)
    assert list(batches) == [5]
    assert list(batches) == []


def test_a_sample_that_is_none_is_named():
    batches = iter(data.DataLoader([1, 2, None], batch_size=2, num_workers=1, **FORKED))
    assert next(batches).tolist() == [1, 2]
    with pytest.raises(
        TypeError, match=r"^Caught ArgumentError in (.|\n)*sample 0 of the batch, at dataset index 2, is N"
    ):
        next(batches)


@pytest.mark.compiled
def test_compilations_are_noted_for_the_datasets_line_and_announced_by_the_first_worker():
    asked = ["pending", "pending", "notices", "notices"]
    first, second = list(loader(asked, multiprocessing_context=None))[2:]
    line = Asked.__getitem__.__code__
    place = f"{line.co_filename}:{line.co_firstlineno} (DataLoader worker {{}})"
    assert first == (place.format(0), config.SLOW_COMPILE_SECONDS)
    assert second == (place.format(1), 1e6)


def test_a_worker_that_cannot_start_says_why():
    batches = iter(loader([1, 2], num_workers=1, worker_init_fn=fail_to_start))
    with pytest.raises(KeyError, match=r"^Caught KeyError in DataLoader worker process 0.(.|\n)*no drive 0"):
        next(batches)


def test_a_killed_worker_is_named():
    batches = iter(data.DataLoader(Pids(), None, num_workers=2))
    victim = next(batches)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"^DataLoader worker \(pid {victim}\) is killed by signal: Killed\.$"):
        for _ in batches:
            pass
    assert list(batches) == []


def test_a_worker_that_exits_is_named():
    with pytest.raises(
        RuntimeError, match=r"^DataLoader worker \(pid \d+\) exited unexpectedly with exit code 3\. Det"
    ):
        list(loader(["exit"], num_workers=1))


def test_a_batch_may_be_late():
    late = loader(["wait"], num_workers=1, dataset=Asked(event=SPAWN.Event()), timeout=0.1)
    with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 0\.1 seconds$"):
        list(late)


def test_what_cannot_be_pickled_is_named():
    here = (
        r"cannot be sent to worker processes: .*[pP]ickle.* define functions and classes at the top level of a module"
    )
    with pytest.raises(TypeError, match=f"^DataLoader: collate_fn {here}"):
        iter(data.DataLoader([1], num_workers=1, collate_fn=lambda batch: batch, **SPAWNED))
    with pytest.raises(TypeError, match=f"^DataLoader: dataset {here}"):
        iter(
            data.DataLoader([1, iter], num_workers=1, collate_fn=kept, worker_init_fn=say_hello, sampler=[0], **SPAWNED)
        ) and iter(data.DataLoader([lambda: 1], num_workers=1, **SPAWNED))
    with pytest.raises(TypeError, match=f"^DataLoader: worker_init_fn {here}"):
        iter(data.DataLoader([1], num_workers=1, worker_init_fn=lambda worker: None, **SPAWNED))


# --- the main process ---

HEADER = """
import os, signal, sys
from weft.utils import data
from weft.utils.data._utils import worker as of_workers
from tests.utils.data.in_workers import Asked, Pids, Stuck, kept
"""


def script(tmp_path, text, **options):
    path = tmp_path / "script.py"
    path.write_text(HEADER + text)
    return interpreter(str(path), **options)


def interpreter(*arguments, **options):
    folders = [str(Path(__file__).parents[3]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def test_a_script_without_a_guard_is_told(tmp_path):
    text = "list(data.DataLoader(Asked(), num_workers=1, multiprocessing_context='spawn'))"
    _, errors = script(tmp_path, text).communicate()
    last = errors.strip().splitlines()[-1]
    assert last.startswith("weft.errors.WorkerError: DataLoader worker (pid ")
    assert last.endswith('everything that should run once has to stand under `if __name__ == "__main__":`.')


LOOP = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
if __name__ == "__main__":
    batches = iter(data.DataLoader({dataset}(), None, num_workers=2))
    print(next(batches), next(batches), flush=True)
    for batch in batches:
        pass
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs a handle on a process that is no child")
@pytest.mark.parametrize(("dataset", "number"), [("Pids", signal.SIGINT), ("Stuck", signal.SIGKILL)])
@pytest.mark.soak
def test_workers_end_with_their_parent(dataset, number, tmp_path):
    process = script(tmp_path, LOOP.format(dataset=dataset), start_new_session=True)
    workers = [os.pidfd_open(int(pid)) for pid in process.stdout.readline().split()]
    if number == signal.SIGINT:  # a terminal sends it to all of them
        os.killpg(process.pid, number)
    else:
        process.kill()
    _, errors = process.communicate()
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == (number == signal.SIGINT)
    for worker in workers:
        assert select.select([worker], [], [], 60)[0], "a worker goes on without its parent"
        os.close(worker)


@pytest.mark.soak
def test_a_forkserver_may_start_the_workers(tmp_path):
    text = """
if __name__ == "__main__":
    options = {"num_workers": 1, "multiprocessing_context": "forkserver"}
    print(*data.DataLoader(Asked(), None, sampler=["who"], collate_fn=kept, **options))
    class Local: ...
    try:
        list(data.DataLoader([Local()], None, collate_fn=kept, **options))
    except AttributeError as error:
        print(str(error).splitlines()[-1])
"""
    output, errors = script(tmp_path, text).communicate()
    assert errors == ""
    assert "'Asked', 'cpu')\n" in output
    assert output.endswith(
        "A worker process is a new interpreter that imports what it is sent: define datasets and functions at the top "
        "level of a module or script, or use num_workers=0.\n"
    )


TYPED = """
print(*data.DataLoader(Asked(), None, sampler=[5, "who"], collate_fn=kept, num_workers=1))
class Local(list): ...

iter(data.DataLoader(Local([1]), num_workers=1))
"""


@pytest.mark.parametrize("argument", ["-", pytest.param("-i", marks=pytest.mark.soak)])
def test_a_typed_program_may_use_what_workers_can_import(argument):
    process = interpreter(argument, stdin=subprocess.PIPE)
    output, errors = process.communicate(HEADER + TYPED)
    assert output.startswith("5 (0, 1, ")
    assert (
        "ArgumentError: DataLoader: dataset cannot be sent to worker processes: 'Local' is defined in a program from "
        "standard input or an interactive shell, which workers cannot import. It has to be picklable: define "
        "functions and classes at the top level of a module"
    ) in errors
    assert "spawn_main" not in errors


def test_libraries_may_set_the_info_of_a_worker():
    info = of_workers.WorkerInfo(id=1, num_workers=2, seed=3, dataset=None)
    of_workers._worker_info = info
    try:
        assert data.get_worker_info() is of_workers._worker_info is info
    finally:
        of_workers._worker_info = None
    assert data.get_worker_info() is None
