"""Workers that are forked, as they are by default on Linux."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import weft as torch
from weft.utils import data

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")


def output(program):
    """What a program from standard input prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error"], input=textwrap.dedent(program), capture_output=True, text=True, timeout=120
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_what_cannot_be_pickled_is_inherited():
    class Local(data.Dataset):
        def __init__(self):
            self.scale = torch.full((70_000,), 2.0)
            self.pending = self.scale * 3
            self.function = lambda i: self.pending.sum() * i

        def __len__(self):
            return 5

        def __getitem__(self, i):
            return {"x": self.function(i), "parent": os.getppid()}

    started = []
    found = data.DataLoader(
        Local(), batch_size=2, num_workers=2, worker_init_fn=lambda w: started.append(w), collate_fn=lambda x: x
    )
    for _ in range(2):
        samples = [one for batch in found for one in batch]
        assert [one["x"].item() for one in samples] == [420_000 * i for i in range(5)]
        assert {one["parent"] for one in samples} == {os.getpid()}
    assert started == []


def test_a_program_from_standard_input_needs_no_guard():
    program = """
        import torch.utils.data as data, torch
        class Here(data.Dataset):
            def __len__(self): return 3
            def __getitem__(self, i): return torch.tensor([1.0, 2.0]) @ torch.tensor([i, 1.0])
        torch.ones(3).sum().item()
        print([batch.tolist() for batch in data.DataLoader(Here(), num_workers=2)])
    """
    expected = "[[2.0], [3.0], [4.0]]"
    assert output("import weft.__main__ as m; m.as_torch()\n" + textwrap.dedent(program)) == [expected]


@pytest.mark.compiled
def test_workers_compute_where_xla_runs():
    xs = torch.arange(6.0).reshape(3, 2)
    (xs * 2).sum().item()
    dataset = data.TensorDataset(xs, xs @ torch.ones(2, 2))
    batches = [[part.tolist() for part in batch] for batch in data.DataLoader(dataset, 3, num_workers=1)]
    assert batches == [[xs.tolist(), (xs @ torch.ones(2, 2)).tolist()]]


def test_loaders_side_by_side_end_each_for_itself():
    """A later worker has the earlier loader's ends of links, which must not keep that one's workers."""
    first = iter(data.DataLoader([1, 2, 3], num_workers=2))
    workers = set(multiprocessing.active_children())
    next(first)
    second = iter(data.DataLoader([4, 5], num_workers=2))
    first._close()  # waits for the workers, which get no signal before five seconds
    assert {one.exitcode for one in workers if one._popen is not None} <= {0, None}
    assert [batch.item() for batch in second] == [4, 5]


def test_a_worker_starts_no_workers():
    class Nested(data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, i):
            return [x.item() for x in data.DataLoader([1], num_workers=1)]

    with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
        list(data.DataLoader(Nested(), num_workers=1, timeout=60))


def test_the_start_method_of_the_program_is_that_of_workers():
    program = """
        import multiprocessing, os
        multiprocessing.set_start_method("spawn")
        from weft.utils import data
        iterator = iter(data.DataLoader([1], num_workers=1))
        print(iterator._pool._forks, next(iterator).item())
    """
    assert output(program) == ["False 1"]


def test_shared_tensors_are_written_to_by_workers():
    seen = torch.zeros(4).share_memory_()

    class Counts(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            seen[i] += i
            return i

    list(data.DataLoader(Counts(), num_workers=2))
    assert seen.tolist() == [0, 1, 2, 3]


def test_workers_draw_differently_and_reproducibly():
    class Draws(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return torch.cat([torch.rand(1), torch.from_numpy(np.random.rand(1)).float()])

    def drawn():
        torch.manual_seed(3)
        return torch.cat(list(data.DataLoader(Draws(), num_workers=2))).tolist()

    first = drawn()
    assert first == drawn()
    assert len({tuple(one) for one in first}) == 4


LOADED = """
    import multiprocessing, os, sys, threading
    import weft as torch

    def work():
        while not done.is_set():
            x = torch.ones(64, 64, requires_grad=True)
            (x @ x).sin().sum().backward()
            x.grad.sum().item()
            torch.rand(100).sum().item()
            (torch.ones(3) + 1).tolist()

    done = threading.Event()
    base = torch.arange(5.0)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range({forks}):
        child = os.fork()
        if not child:
            x = torch.ones(8, 8, requires_grad=True)
            (x * base[number % 5]).sum().backward()
            right = x.grad.sum().item() == 64 * (number % 5) and torch.rand(3).numel() == 3
            os._exit(0 if right else 3)
        code = os.waitpid(child, 0)[1]
        if code:
            print("failed", number, code)
            break
    done.set()
    for thread in threads:
        thread.join()
    print("done")
"""


@pytest.mark.soak
@pytest.mark.parametrize("forks", [150, 10_000])
@pytest.mark.parametrize("tier", ["auto", "interpreted"])
def test_forks_out_of_a_process_that_computes_in_other_threads(forks, tier):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOADED).format(forks=forks)],
        capture_output=True,
        text=True,
        timeout=forks,
        env={**os.environ, "WEFT_TIER": tier},
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_libraries_find_processes_and_facts_of_workers_by_pytorchs_names():
    class Facts(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            info = data.get_worker_info()
            try:
                info.seed = 3
            except RuntimeError as error:
                return str(error), repr(info).startswith(f"WorkerInfo(id={info.id}, num_workers=2, seed=")

    batches = iter(data.DataLoader(Facts(), batch_size=None, num_workers=2))
    processes = list(batches._workers)
    assert list(batches) == [["Cannot assign attributes to WorkerInfo objects", True]] * 4
    for process in processes:
        process.join()
        assert (process.is_alive(), process.exitcode) == (False, 0)
    assert data.DataLoader([1])._auto_collation
    assert not data.DataLoader([1], batch_size=None)._auto_collation


def test_the_first_batch_does_not_start_xla():
    program = """
        import weft.utils.data as data, weft as torch
        from weft._lazy.runtime import has_started
        (batch,) = data.DataLoader([torch.ones(3)], batch_size=None, num_workers=1)
        print((batch + 1).tolist(), has_started())
    """
    assert output(program) == ["[2.0, 2.0, 2.0] False"]
