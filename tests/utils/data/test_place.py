"""A pass over a loader that goes on in another process, from the state of a checkpoint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.utils.data.test_dataset import Counting
from weft.utils import data


class Spied(data.Dataset):
    """The numbers below `count`; keeps which were read."""

    def __init__(self, count):
        self.count = count
        self.read = []

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        self.read.append(at)
        return at


def passes(loader, epochs, stop=None):
    """Batches as lists, epoch by epoch; the state after `stop` batches ends it."""
    found = []
    for _ in range(epochs):
        found.append([])
        for batch in loader:
            found[-1].append(batch if isinstance(batch, (int, list)) else batch.tolist())
            if sum(map(len, found)) == stop:
                return found, loader.state_dict()
    return found, loader.state_dict()


def seeded():
    return weft.Generator().manual_seed(5)


LOADERS = {
    "in order": lambda dataset: data.DataLoader(dataset, 3),
    "shuffled": lambda dataset: data.DataLoader(dataset, 3, shuffle=True),
    "cut": lambda dataset: data.DataLoader(dataset, 3, shuffle=True, drop_last=True),
    "generator": lambda dataset: data.DataLoader(dataset, 3, shuffle=True, generator=seeded()),
    "sampler": lambda dataset: data.DataLoader(dataset, 3, sampler=data.RandomSampler(dataset, True, 8, seeded())),
    "samples": lambda dataset: data.DataLoader(dataset, None, shuffle=True),
    "batches": lambda dataset: data.DataLoader(
        dataset, batch_sampler=data.BucketBatchSampler([1] * 10, [1], 3, shuffle=True, generator=seeded())
    ),
    "two samplers": lambda dataset: data.DataLoader(
        dataset, batch_sampler=data.BatchSampler(data.RandomSampler(dataset, generator=seeded()), 3, True)
    ),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_pass_goes_on_behind_the_batches_that_were_given(kind, tmp_path):
    whole, _ = passes(LOADERS[kind](Spied(10)), 3)
    weft.manual_seed(0)
    before, state = passes(LOADERS[kind](Spied(10)), 2, stop=len(whole[0]) + 2)
    weft.save({"loader": state, "random": weft.get_rng_state()}, tmp_path / "checkpoint.weft")

    weft.manual_seed(123)
    checkpoint = weft.load(tmp_path / "checkpoint.weft")
    dataset = Spied(10)
    loader = LOADERS[kind](dataset)
    loader.load_state_dict(checkpoint["loader"])
    assert loader.state_dict() == state
    weft.set_rng_state(checkpoint["random"])
    (after,), _ = passes(loader, 1)
    assert before[0] == whole[0]
    assert before[1] + after == whole[1]
    assert dataset.read == [at for batch in after for at in (batch if isinstance(batch, list) else [batch])]
    assert weft.get_rng_state().tolist() == checkpoint["random"].tolist()
    assert passes(loader, 1)[0] == whole[2:]


@pytest.mark.slow
def test_batches_that_workers_have_ready_are_not_counted():
    def loader(**options):
        return data.DataLoader(range(20), 3, shuffle=True, generator=seeded(), **options)

    whole = [batch.tolist() for batch in loader()]
    ahead, here = loader(num_workers=1, multiprocessing_context="forkserver"), loader()
    assert next(iter(ahead)).tolist() == whole[0]
    here.load_state_dict(ahead.state_dict())
    assert [batch.tolist() for batch in here] == whole[1:]


def test_batches_on_their_way_to_a_device_are_not_counted():
    loader = data.prefetch_to(data.DataLoader(range(6), 2), "cpu", ahead=2)
    for batch in loader:
        if batch.tolist() == [2, 3]:
            state = loader.state_dict()
    assert state["position"] == 4
    assert loader.state_dict()["position"] == 0
    loader.load_state_dict(state)
    assert [batch.tolist() for batch in loader] == [[4, 5]]
    with pytest.raises(RuntimeError, match=r"IterableDataset's place cannot be told"):
        data.prefetch_to(data.DataLoader(Counting()), "cpu").state_dict()
    assert len(list(data.prefetch_to(data.DataLoader(Counting()), "cpu"))) == 5


def test_after_the_last_batch_nothing_is_left_and_after_the_end_all_is():
    loader = data.DataLoader(range(4), 2)
    batches = iter(loader)
    assert [batch.tolist() for batch in (next(batches), next(batches))] == [[0, 1], [2, 3]]
    last = loader.state_dict()
    with pytest.raises(StopIteration):
        next(batches)
    again = data.DataLoader(range(4), 2)
    again.load_state_dict(last)
    assert [len(list(again)) for _ in range(2)] == [0, 2]
    again.load_state_dict(loader.state_dict())
    assert [len(list(again)) for _ in range(2)] == [2, 2]


def share(count, size, rank, batch, drop_last=True):
    """The loader of one process of `size`."""
    sampler = data.DistributedSampler(range(count), size, rank, seed=3, drop_last=drop_last)
    return data.DataLoader(range(count), batch // size, sampler=sampler, drop_last=drop_last)


def together(loaders, epoch):
    """The batches of all processes as sets: what is trained on at each step."""
    for loader in loaders:
        loader.sampler.set_epoch(epoch)
    return [sorted(at for batch in step for at in batch.tolist()) for step in zip(*loaders, strict=True)]


@given(
    count=st.integers(0, 60),
    sizes=st.tuples(*[st.sampled_from([1, 2, 3, 4, 6])] * 2),
    epoch=st.integers(0, 2),
    steps=st.integers(1, 5),
)
def test_another_number_of_processes_goes_on_with_the_same_global_batches(count, sizes, epoch, steps):
    whole = together([share(count, 1, 0, 12)], epoch)
    first, second = ([share(count, size, rank, 12) for rank in range(size)] for size in sizes)
    assert together(first, epoch) == whole
    for _, batch in zip(range(steps), first[0], strict=False):
        assert len(batch) == 12 // sizes[0]
    for loader in second:
        loader.load_state_dict(first[0].state_dict())
        assert loader.sampler.epoch == epoch
    done = steps if steps <= len(whole) else 0  # behind the end, a pass begins anew
    assert together(second, epoch) == whole[done:]
    assert together(second, epoch + 1) == together([share(count, 1, 0, 12)], epoch + 1)


@given(count=st.integers(0, 40), sizes=st.tuples(*[st.integers(1, 5)] * 2), steps=st.integers(1, 3))
def test_batches_of_another_size_go_on_with_the_same_order(count, sizes, steps):
    """Each process has batches of 2, so a global batch has another size; padding makes shares equally long."""
    order = list(data.DistributedSampler(range(count), 1, 0, seed=3))
    first, second = ([share(count, size, rank, 2 * size, False) for rank in range(size)] for size in sizes)
    steps = min(steps, len(first[0]))
    for _ in zip(range(steps), first[0], strict=False):
        pass
    for loader in second:
        loader.load_state_dict(first[0].state_dict())
    assert {loader.sampler.start for loader in second} == {0}
    shares = [[at for batch in loader for at in batch.tolist()] for loader in second]
    dealt = [shares[at % sizes[1]][at // sizes[1]] for at in range(sum(map(len, shares)))]
    left = order[2 * sizes[0] * steps :]
    assert dealt[: len(left)] == left
    assert len({len(share) for share in shares}) == 1
    assert len(dealt) - len(left) in range(sizes[1])


def test_a_state_of_another_epoch_than_the_one_chosen_is_left():
    loader = share(12, 1, 0, 4)
    next(iter(loader))
    state = loader.state_dict()
    assert (state["position"], state["epoch"]) == (4, 0)
    loader.load_state_dict(state)
    loader.sampler.set_epoch(1)
    assert len(list(loader)) == 3


def test_states_that_do_not_fit_are_refused():
    loader = data.DataLoader(range(4))
    with pytest.raises(RuntimeError, match=r"^expected a state of DataLoader.state_dict\(\), with position, epoch and"):
        loader.load_state_dict({"position": 1})
    with pytest.raises(RuntimeError, match=r"generators; got \['epoch', 'generators', 'position'\]$"):
        loader.load_state_dict({"position": -1, "epoch": None, "generators": None})
    with pytest.raises(RuntimeError, match=r"generators; got NoneType$"):
        loader.load_state_dict(None)
    with pytest.raises(RuntimeError, match=r"only one has a DistributedSampler; their orders differ$"):
        loader.load_state_dict(share(4, 1, 0, 1).state_dict())
    other = data.DataLoader(range(4), shuffle=True, generator=seeded())
    next(iter(other))
    loader.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match=r"drew from 2 generators, this one draws from 1: give both the same"):
        iter(loader)
    with pytest.raises(RuntimeError, match=r"IterableDataset's place cannot be told from batches; save what the data"):
        data.DataLoader(Counting()).state_dict()
    with pytest.raises(RuntimeError, match=r"with in_order=False, the batches so far are not the first of the order$"):
        data.DataLoader(range(4), num_workers=2, in_order=False).state_dict()
