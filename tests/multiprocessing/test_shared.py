"""Tensors in shared memory, between real processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import weft as torch
import weft.multiprocessing as mp
from tests.multiprocessing import functions, labelled

METHODS = ["fork", "spawn"]


def names():
    """The segments with a name that are there."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("weft-")}


@pytest.fixture(params=sorted(mp.get_all_sharing_strategies()))
def strategy(request):
    before, left = mp.get_sharing_strategy(), names()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)
    assert names() == left


@pytest.mark.parametrize("method", METHODS)
def test_a_process_writes_to_its_arguments(method, strategy):
    context = multiprocessing.get_context(method)
    x = torch.zeros(70_000).share_memory_()
    process = context.Process(target=functions.add_one, args=(x[1:],))
    process.start()
    process.join()
    assert (process.exitcode, x.is_shared()) == (0, True)
    assert x[:3].tolist() == [0, 1, 1]
    assert x.sum() == 69_999


@pytest.mark.parametrize("method", METHODS)
def test_queues_share_what_goes_through_them(method, strategy):
    context = multiprocessing.get_context(method)
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=functions.write_to_what_comes, args=(there, back), daemon=True)
    process.start()
    whole = torch.zeros(3, 4)
    parameter = torch.nn.Parameter(torch.ones(2))
    numbers = torch.arange(12).view(3, 4)
    there.put((whole, whole[1:], parameter, numbers.t()[1:], whole.untyped_storage()))
    assert back.get(timeout=60) == ("Parameter", True, True, (1, 4), 1, True)
    assert whole.tolist() == [[1] * 4, [9] * 4, [9, 9, 9, 0]]
    assert parameter.tolist() == [2, 2]
    assert numbers[0].tolist() == [0, -1, 2, 3]
    new = back.get(timeout=60)
    there.put("seen")
    process.join()
    assert new.tolist() == [0, 1, 2]
    assert new.is_shared()


def test_models_are_trained_together(strategy):
    """Hogwild: processes train one model, whose parameters they share, without locks."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1).share_memory()
    inputs = torch.randn(64, 8)
    before = functions.loss_of(model, inputs).item()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=functions.train, args=(model, inputs)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert functions.loss_of(model, inputs) < before / 100


def test_gradients_are_shared_with_the_model():
    model = torch.nn.BatchNorm1d(2)
    model.weight.grad = torch.ones(2)
    assert all(x.is_shared() for x in (*model.share_memory().state_dict().values(), model.weight.grad))


def test_what_arrives_twice_is_one_storage():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    x = torch.zeros(3)
    sender.send((x, x.view(1, 3)))
    one, other = receiver.recv()
    sender.send(x)
    later = receiver.recv()
    x += 1
    assert [t.tolist() for t in (one, other, later)] == [[1, 1, 1], [[1, 1, 1]], [1, 1, 1]]
    assert {t.untyped_storage().data_ptr() for t in (x, one, other, later)} == {x.untyped_storage().data_ptr()}


@pytest.mark.compiled
def test_a_forked_process_sends_tensors_of_classes_of_programs():
    (torch.ones(2) * 2).sum().item()  # starts XLA's threads, which the process lacks
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=labelled.send_subclass, args=(sender,))
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    assert (type(found), found.tolist()) == (labelled.Labelled, [0, 1, 2])


def test_results_of_operators_with_gradients_are_refused():
    _, sender = multiprocessing.Pipe()
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        sender.send(torch.ones(1, requires_grad=True) * 2)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.int64])
def test_types_and_sizes(dtype):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    for x in (torch.ones(2, 3).to(dtype), torch.zeros(0, 2).to(dtype), torch.ones(()).to(dtype)):
        sender.send(x)
        y = receiver.recv()
        assert (y.dtype, y.shape, y.tolist()) == (x.dtype, x.shape, x.tolist())
    sender.send((torch.ones(2, 2).to_sparse(), torch.zeros(2, device="meta")))
    sparse, meta = receiver.recv()
    assert sparse.to_dense().tolist() == [[1, 1], [1, 1]]
    assert meta.is_meta


def resident():
    """Pages of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_nothing_is_left_of_thousands_of_shared_tensors(count, strategy):
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def send(count):
        for number in range(count):
            sender.send(torch.full((5000,), number))
            assert receiver.recv()[0] == number

    send(count // 10)
    descriptors, pages = len(os.listdir("/proc/self/fd")), resident()
    send(count)
    assert len(os.listdir("/proc/self/fd")) < descriptors + 10
    assert (resident() - pages) * os.sysconf("SC_PAGE_SIZE") < count * 20_000 / 4


def test_nothing_is_left_after_kills(strategy):
    """Processes that share memory are all killed, and what was under way to one of them with them."""
    before = names()
    program = textwrap.dedent(
        f"""
        import os, signal, weft as torch, weft.multiprocessing as mp
        mp.set_sharing_strategy({strategy!r})
        x = torch.ones(1000).share_memory_()
        queue = mp.get_context("fork").Queue()
        queue.put(torch.ones(1000))
        child = os.fork()
        if child:
            while queue.empty():
                pass
            print("ready", child, flush=True)
        signal.pause()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        word, child = process.stdout.readline().split()
        assert word == "ready"
        assert (strategy == "file_system") == (names() > before)
        for number in (int(child), process.pid):
            os.kill(number, signal.SIGKILL)
        # The tracker, which removes what is left, keeps the pipe open until it has.
        process.stderr.read()
    assert names() == before


def test_threads_have_names():
    before = mp._get_thread_name()
    try:
        mp._set_thread_name("a name of more than 15 bytes")
        assert mp._get_thread_name() == "a name of more "
    finally:
        mp._set_thread_name(before)


def test_hooks_stay_in_their_process_and_can_be_asked_for():
    x = torch.ones(2, requires_grad=True)
    assert x._backward_hooks is None
    handle = x.register_hook(lambda grad: grad)
    assert list(x._backward_hooks) == [handle.id]
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sender.send(x)
    assert receiver.recv()._backward_hooks is None
    handle.remove()
    assert not x._backward_hooks
