"""Training loops into which interrupts come at random times."""

import random
import signal
import sys
import traceback
from types import TracebackType

import pytest

import weft
from tests.interrupting import Interrupts
from weft import nn
from weft._base import config
from weft._base.interrupts import keep_ignored_interrupts
from weft._base.site import end_at_user
from weft._lazy import flushing, trace
from weft._lazy.plan import plan

INPUTS = weft.linspace(-1, 1, 16 * 24).reshape(16, 24).tolist()


def new_model(kind):
    """A model, its optimizer and a step that do not amplify rounding, since interrupts cut programs elsewhere.

    With the defaults of AdamW, two uninterrupted runs in different tiers differ by .02 after 195 steps in float32, and
    by .02 after 660 in float64: AdamW makes full steps out of small gradients. With a large `eps` it makes small ones,
    and the runs agree to 1e-6 after 3,000 steps.
    """
    weft.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(24, 24), nn.BatchNorm1d(24), nn.GELU()) for _ in range(3)]
    model = nn.Sequential(*layers).double()
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.1, eps=1.0)
    inputs = weft.tensor(INPUTS, dtype=weft.float64)

    def step():
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, weft.compile(step) if kind == "captured" else step


def interrupted(kind, count, seed):
    """A model, and the numbers of its steps, after a loop that `count` interrupts have left and that has gone on."""
    model, optimizer, step = new_model(kind)
    for _ in range(3):
        step().item()
    with Interrupts(seed, 0.02) as interrupts:
        caught = 0
        while caught < count:
            caught += interrupts.interrupts(lambda: step().item())
    step().item()
    return model, {int(state["step"]) for state in optimizer.state.values()}


def check_is_that_of_an_uninterrupted_run(kind, count, seed=0):
    model, steps = interrupted(kind, count, seed)
    assert len(steps) == 1, "all parameters have had the same steps"
    other, _, step = new_model(kind)
    for _ in range(steps.pop()):
        step().item()
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        weft.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["recorded", "captured"])
def test_a_loop_goes_on_as_if_nothing_had_happened(kind):
    check_is_that_of_an_uninterrupted_run(kind, 30)


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["recorded", "captured"])
def test_a_compiled_loop_goes_on_as_if_nothing_had_happened(kind, monkeypatch):
    monkeypatch.setattr(config, "TIER", "compiled")
    check_is_that_of_an_uninterrupted_run(kind, 10)


@pytest.mark.soak
@pytest.mark.parametrize("tier", ["interpreted", "auto", "compiled"])
@pytest.mark.parametrize("kind", ["recorded", "captured"])
def test_a_thousand_interrupts(kind, tier, monkeypatch):
    """In trainings of some 600 steps each: one that has converged would hide a step that is lost."""
    monkeypatch.setattr(config, "TIER", tier)
    for seed in range(25):
        check_is_that_of_an_uninterrupted_run(kind, 40, seed)


def test_an_endless_loop_without_reads_forgets_nothing_that_it_has_recorded(monkeypatch):
    """A list that was taken to be computed is put back, so that no later program has to compute all of it at once."""
    monkeypatch.setattr(config, "NODE_CAP", 1024)
    total, done, caught = weft.zeros(3), 0, 0

    def add():
        nonlocal done
        for _ in range(100):
            total.add_(1)
            done += 1

    compilations = []
    monkeypatch.setattr(flushing, "plan", lambda *args: compilations.append(plan(*args)) or compilations[-1])
    with Interrupts(0, 0.05) as interrupts:
        while caught < 20:
            caught += interrupts.interrupts(add)
    assert done <= total[0].item() <= done + caught
    assert max(len(batch.graph.steps) for batch in compilations if batch is not None) < 2 * 1024


def test_what_a_handler_raises_is_no_misfit_of_inputs(monkeypatch):
    """A new signature is being traced when the signal comes; errors of the trace are explained as the inputs'."""

    class TimedOut(Exception):
        pass

    def on_signal(number, frame):
        raise TimedOut("0.1 s are over")

    jaxpr_of = trace.jaxpr_of

    def jaxpr_with_signal(*args):
        signal.raise_signal(signal.SIGUSR1)
        return jaxpr_of(*args)

    before = signal.signal(signal.SIGUSR1, on_signal)
    monkeypatch.setattr(trace, "jaxpr_of", jaxpr_with_signal)
    try:
        with pytest.raises(TimedOut, match="are over"):
            weft.ones(3, 1, 2, 1, 7).cumsum(4)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", ["recorded", "captured"])
def test_the_traceback_of_an_interrupt_ends_at_the_users_line(kind):
    _, _, step = new_model(kind)
    for _ in range(3):
        step().item()
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)  # a function of C, which has no frame
    hook = sys.unraisablehook
    keep_ignored_interrupts()
    draw = random.Random(2)
    depths, caught = [], 0
    try:
        while caught < 30:
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, draw.uniform(1e-4, 0.01))
                while True:  # the timer goes by ticks, which are longer than a step
                    step().item()
            except KeyboardInterrupt as error:
                caught += 1
                names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
                depths.append(sum(name != __file__ for name in names))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        sys.unraisablehook = hook
    assert max(depths) <= 3  # those of the modules, as where PyTorch is interrupted; up to 80 without the cut


def test_a_named_tuple_that_is_being_made_is_no_line_of_the_users():
    """It is made by a function that Python has written itself."""
    error, here = KeyboardInterrupt(), sys._getframe()

    def interrupt(frame, event, _):
        """Give the error the traceback of an interrupt that comes in a constructor; raising one would add a line."""
        if event == "call" and frame.f_code.co_name == "_make":
            trace = None
            while frame is not None:
                trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
                frame = None if frame is here else frame.f_back
            error.__traceback__ = trace

    x = weft.ones(2, 3)
    sys.setprofile(interrupt)
    x.max(1)
    sys.setprofile(None)
    assert len(traceback.extract_tb(error.__traceback__)) > 3
    end_at_user(error)
    assert [entry.name for entry in traceback.extract_tb(error.__traceback__)] == [here.f_code.co_name]
