"""`Join`: ranks with different numbers of inputs, in generic classes and in replicas."""

from __future__ import annotations

from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.algorithms import Join, Joinable, JoinHook
from weft.nn.parallel import DistributedDataParallel


def run(body, nprocs=2):
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        return body(rank)

    return dist.run_threads(rank_of, nprocs=nprocs)


# --- the context itself ---


class CounterHook(JoinHook):
    def __init__(self, counter):
        self.counter = counter

    def main_hook(self):
        dist.all_reduce(weft.zeros(1), group=self.counter.join_process_group)
        self.counter.shadowed += 1

    def post_hook(self, is_last_joiner):
        self.counter.last = is_last_joiner


class Counter(Joinable):
    """Sums over the ranks that have something."""

    def __init__(self, group=None):
        super().__init__()
        self.group = group or dist.new_group()
        self.total, self.shadowed, self.last, self.working = 0.0, 0, None, 0

    def __call__(self):
        if Join.notify_join_context(self) is not None:
            self.working += 1
        x = weft.ones(1)
        dist.all_reduce(x, group=self.group)
        self.total += x.item()

    def join_hook(self, **kwargs):
        self.given = kwargs
        return CounterHook(self)

    @property
    def join_device(self):
        return weft.device("cpu")

    @property
    def join_process_group(self):
        return self.group


def test_ranks_without_inputs_shadow_the_others():
    def body(rank):
        first = Counter()
        second = Counter(first.group)
        with Join([first, second], flavour="sour"):
            for _ in range(2 + 2 * rank):
                first()
                second()
        assert first.given == second.given == {"flavour": "sour"}
        assert first.working == 2 + 2 * rank
        assert second.working == 0  # the first one notifies for all
        assert Join.notify_join_context(first) is None  # the context is over
        return first.total, second.total, first.shadowed, first.last

    assert run(body, 3) == [(6, 6, 4, False), (6 + 4, 10, 2, False), (6 + 4 + 2, 12, 0, True)]


def test_all_ranks_may_be_stopped_when_one_has_nothing_left():
    def body(rank):
        counter = Counter()
        with pytest.raises(RuntimeError) as caught, Join([counter], throw_on_early_termination=True):
            [counter() for _ in range(1 + rank)]
        return str(caught.value)

    exhausted = "Rank 0 exhausted all inputs."
    assert run(body) == [exhausted, "Detected at least one rank that exhausted inputs. Throwing across all ranks."]


def test_a_disabled_context_does_nothing():
    def body(rank):
        counter = Counter()
        with Join([counter], enable=False):
            counter()
        return counter.total, counter.working, counter.last

    assert run(body) == [(2, 0, None)] * 2


def test_errors_of_the_loop_pass_through():
    def body(rank):
        counter = Counter()
        with pytest.raises(KeyError, match="mine"), Join([counter]):
            raise KeyError("mine")
        assert Join.notify_join_context(counter) is None

    run(body, 1)


def test_what_cannot_be_joined_is_refused():
    def body(rank):
        with pytest.raises(ValueError, match="The join context manager requires at least one joinable"):
            Join([])
        with pytest.raises(ValueError, match="Using join context manager with multiple process groups"):
            Join([Counter(), Counter()])
        with pytest.raises(AssertionError, match="constructor calls the ``Joinable`` constructor"):
            Join.notify_join_context(object())

    run(body, 1)


# --- replicas ---

LR = 0.5


def one_weight(value=1.0):
    module = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(module.weight, value)
    return module


def steps(model, inputs, shape=(1, 1)):
    optimizer = weft.optim.SGD(model.parameters(), LR)
    for x in inputs:
        optimizer.zero_grad()
        model(weft.full(shape, x, dtype=weft.float64)).sum().backward()
        optimizer.step()


INPUTS = {0: [1.0, 2.0], 1: [3.0, 4.0, 5.0, 6.0], 2: [7.0, 8.0, 9.0]}


@pytest.mark.parametrize("by_all", [True, False])
def test_averages_are_over_all_ranks_or_over_those_with_inputs(by_all):
    def body(rank):
        module = one_weight()
        model = DistributedDataParallel(module)
        with model.join(divide_by_initial_world_size=by_all):
            steps(model, INPUTS[rank])
        assert model.reducer.divisor is None
        return module.weight.item()

    expected = 1.0
    for step in range(4):
        given = [inputs[step] for inputs in INPUTS.values() if len(inputs) > step]
        expected -= LR * sum(given) / (3 if by_all else len(given))
    assert run(body, 3) == [pytest.approx(expected, abs=1e-12)] * 3


class Model(nn.Module):
    """Layers in an order that is not theirs in a backward pass, a buffer, and a layer that takes part now and then."""

    def __init__(self):
        super().__init__()
        self.last, self.norm, self.first = nn.Linear(2, 1), nn.BatchNorm1d(2), nn.Linear(2, 2)
        self.sometimes = nn.Linear(2, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = self.norm(self.first(x))
        return self.last(x) + (self.sometimes(x) if self.calls % 2 else 0)


def test_a_rank_without_any_input_follows_buffers_buckets_and_unused_parameters():
    def body(rank):
        weft.manual_seed(0)
        module = Model().double()
        model = DistributedDataParallel(module, bucket_cap_mb=1e-5, find_unused_parameters=True)
        with model.join():
            steps(model, [] if rank == 0 else [1.0, 2.0, 3.0], (4, 2))
        state = {name: value.tolist() for name, value in module.state_dict().items()}
        steps(model, [4.0, 5.0], (4, 2))  # without the context again
        return state, {name: value.tolist() for name, value in module.named_parameters()}

    first, second = run(body)
    assert first == second
    assert first[0]["norm.num_batches_tracked"] == 3


@pytest.mark.parametrize("static", [True, False])
def test_buckets_are_rebuilt_in_the_order_of_a_rank_with_inputs(static):
    def body(rank):
        module = nn.Sequential(*(nn.Linear(1, 1) for _ in range(4)))
        model = DistributedDataParallel(module, bucket_cap_mb=1e-6, static_graph=static)
        with model.join():
            passes(model, 2 * rank)
        passes(model, 2)
        return model.reducer.buckets, [p.grad.tolist() for p in module.parameters()]

    def passes(model, count):
        for x in range(count):
            model.zero_grad()
            model(weft.full((1, 1), float(x))).sum().backward()

    first, second = run(body)
    assert first == second


def test_passes_without_synchronisation_are_followed():
    def body(rank):
        module = one_weight()
        model = DistributedDataParallel(module)
        with model.join():
            for x in [1.0] if rank else [2.0, 3.0, 4.0]:
                with model.no_sync():
                    model(weft.full((1, 1), x, dtype=weft.float64)).backward()
                model(weft.full((1, 1), 10 * x, dtype=weft.float64)).backward()
        return module.weight.grad.item()

    together = (2 + 20 + 1 + 10) / 2
    assert run(body) == [((together + 3 + 30) / 2 + 4 + 40) / 2] * 2


@pytest.mark.parametrize(("divides", "last"), [(True, 1.5), (False, 3.0)])
def test_a_rank_without_inputs_gets_the_gradients_of_the_others(divides, last):
    def body(rank):
        model = DistributedDataParallel(one_weight())
        with model.join(divide_by_initial_world_size=divides):
            for x in [1.0] if rank else [2.0, 3.0]:
                model.zero_grad()
                model(weft.full((1, 1), x, dtype=weft.float64)).backward()
        return model.module.weight.grad.item()

    assert run(body) == [last, last]


def test_the_final_model_is_that_of_a_rank_that_had_inputs_until_the_end():
    def body(rank):
        module = nn.Sequential(one_weight(), nn.BatchNorm1d(1).double())
        module[1].eval()
        model = DistributedDataParallel(module)
        with model.join():
            steps(model, [1.0] * (1 + rank))
            module[1].running_mean.fill_(float(rank))  # only this rank's
        return module[1].running_mean.item()

    assert run(body, 3) == [2, 2, 2]


def test_replicas_may_be_stopped_when_one_has_nothing_left():
    def body(rank):
        model = DistributedDataParallel(one_weight())
        text = ["Rank 0 exhausted all inputs", "Throwing across all ranks"][rank]
        with pytest.raises(RuntimeError, match=text), model.join(throw_on_early_termination=True):
            steps(model, [1.0] * (1 + rank))

    run(body)
