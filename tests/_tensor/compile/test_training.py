"""Whole training steps: compiled ones have the numbers of the others, and are replayed from the third step on."""

from __future__ import annotations

import pytest

import weft
from tests._tensor.compile.programs import captures
from weft import nn, optim

STEPS = 8


def net(*middle):
    return nn.Sequential(nn.Linear(3, 4), *middle, nn.Tanh(), nn.Linear(4, 1))


def trained(make_optimizer, *middle, clip=False):
    model = net(*[make() for make in middle])
    optimizer = make_optimizer(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    return step, [*model.parameters(), *model.buffers()], None


def momentum():
    return trained(lambda p: optim.SGD(p, lr=0.1, momentum=0.9))


def clipped():
    return trained(lambda p: optim.SGD(p, lr=0.1), clip=True)


def norms_and_draws():
    return trained(lambda p: optim.SGD(p, lr=0.1), lambda: nn.BatchNorm1d(4), lambda: nn.Dropout(0.5))


def schedule():
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, list(model.parameters()), lambda at: scheduler.step()


def averages():
    model = net()
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    shadow = [p.detach().clone() for p in model.parameters()]

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        with weft.no_grad():
            for mean, p in zip(shadow, model.parameters(), strict=True):
                mean.mul_(0.9).add_(p, alpha=0.1)
        return loss.detach()

    return step, [*model.parameters(), *shadow], None


def two_players():
    maker, judge = net(), nn.Linear(1, 1)
    first, second = optim.SGD(maker.parameters(), lr=0.1), optim.SGD(judge.parameters(), lr=0.1)

    def step(x):
        made = maker(x)
        loss = judge(made.detach()).square().mean()
        second.zero_grad()
        loss.backward()
        second.step()
        first.zero_grad()
        (1 - judge(made)).square().mean().backward()
        first.step()
        return loss.detach()

    return step, [*maker.parameters(), *judge.parameters()], None


def by_hand():
    weight, bias = weft.ones(3, 1, requires_grad=True), weft.zeros(1, requires_grad=True)

    def step(x):
        loss = (x @ weight + bias).square().mean()
        loss.backward()
        with weft.no_grad():
            for p in (weight, bias):
                p -= 0.1 * p.grad
                p.grad.zero_()
        return loss.detach()

    return step, [weight, bias], None


def through_data():
    weight = weft.ones(3, 1, requires_grad=True)

    def step(x):
        loss = (x @ weight).square().mean()
        loss.backward()
        weight.data = weight.data - 0.1 * weight.grad
        weight.grad = None
        return loss.detach()

    return step, [weight], None


def scaled():
    model = net()
    optimizer, scale = optim.SGD(model.parameters(), lr=0.1), weft.tensor(8.0)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        (loss * scale).backward()
        for p in model.parameters():
            p.grad.div_(scale)
        bad = sum((~weft.isfinite(p.grad)).sum() for p in model.parameters())
        scale.copy_(weft.where(bad > 0, scale * 0.5, scale * 1.1))
        optimizer.step()
        return loss.detach()

    return step, [*model.parameters(), scale], None


def one_buffer():
    flat = weft.linspace(-1, 1, 16)

    def step(x):
        leaf = flat.detach().requires_grad_()
        loss = ((x @ leaf[:12].view(3, 4)).tanh() @ leaf[12:].view(4, 1)).square().mean()
        loss.backward()
        flat.sub_(0.1 * leaf.grad)
        return loss.detach()

    return step, [flat, flat[:12].view(3, 4)], None


def swapped_modes():
    model = net(nn.Dropout(0.5))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        model.eval()
        with weft.no_grad():
            before = model(x).mean()
        model.train()
        optimizer.zero_grad()
        (model(x).mean() - before).square().backward()
        optimizer.step()
        return before

    return step, list(model.parameters()), None


LOOPS = [
    momentum,
    clipped,
    norms_and_draws,
    schedule,
    averages,
    two_players,
    by_hand,
    through_data,
    scaled,
    one_buffer,
    swapped_modes,
]


def run(make, compiled):
    weft.manual_seed(0)
    step, state, between = make()
    if compiled:
        step = weft.compile(step, fullgraph=True)
    losses = []
    for at in range(STEPS):
        losses.append(step(weft.sin(weft.arange(12.0).reshape(4, 3) + at)).item())
        if between is not None:
            between(at)
    return step, weft.cat([weft.tensor(losses), *[tensor.detach().flatten() for tensor in state]])


@pytest.mark.parametrize("make", LOOPS, ids=lambda f: f.__name__)
def test_a_compiled_step_trains_as_the_function_does(make):
    step, found = run(make, compiled=True)
    _, expected = run(make, compiled=False)
    assert weft.allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert captures(step) <= 2


def test_gradients_are_accumulated_by_a_compiled_function_and_a_counter_outside():
    def train(compiled):
        weft.manual_seed(0)
        model = net()
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        def add(x):
            model(x).square().mean().backward()

        def update():
            optimizer.step()
            optimizer.zero_grad()

        if compiled:
            add, update = weft.compile(add, fullgraph=True), weft.compile(update, fullgraph=True)
        for at in range(9):
            add(weft.sin(weft.arange(12.0).reshape(4, 3) + at))
            if at % 3 == 2:
                update()
        return add, update, weft.cat([p.detach().flatten() for p in model.parameters()])

    add, update, found = train(compiled=True)
    assert weft.allclose(found, train(compiled=False)[2], rtol=1e-5, atol=1e-6)
    assert (captures(add), captures(update)) == (2, 1)  # without a gradient, and with one
