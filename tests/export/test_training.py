"""Steps of training as programs: parameters and the optimizer's state go in and come out."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import weft as torch
from tests.programs import ROOT
from weft import nn
from weft.errors import ArgumentError, ProgramError
from weft.export import Dim, export, load, save
from weft.nn import functional as F

X, Y = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2])


def task(make):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = make(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, optimizer, step


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.05),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_trains_as_the_function_does(name):
    model, optimizer, step = task(OPTIMIZERS[name])
    x, y = torch.tensor(X), torch.tensor(Y)
    program = export(step, (x, y), state={"model": model, "optimizer": optimizer})
    other, _, plain = task(OPTIMIZERS[name])
    torch.manual_seed(2)
    found = [program(x, y).item() for _ in range(4)]
    torch.manual_seed(2)
    np.testing.assert_allclose(found, [plain(x, y).item() for _ in range(4)], rtol=1e-4)
    for one, same in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_allclose(one.numpy(), same.numpy(), rtol=1e-3, atol=1e-5)
    assert all(p.grad is None for p in model.parameters())


def test_the_learning_rate_is_state():
    model, optimizer, step = task(OPTIMIZERS["SGD"])
    program = export(step, (torch.tensor(X), torch.tensor(Y)), state=[model, optimizer])
    assert program.state_dict["1.param_groups.0.lr"].item() == 0.1
    before = model[0].weight.clone()
    program.state_dict["1.param_groups.0.lr"].zero_()
    program(torch.tensor(X), torch.tensor(Y))
    assert torch.equal(model[0].weight, before)


def test_a_scheduler_reaches_a_program_by_its_state():
    x = torch.ones(3, 2)
    losses = []
    for exported in (False, True):
        model, optimizer, step = forgotten(momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        program = export(step, (x,), state={"model": model, "o": optimizer}) if exported else None
        losses.append([])
        for _ in range(3):
            losses[-1].append((program or step)(x).item())
            scheduler.step()
            if program:
                program.state_dict["o.param_groups.0.lr"].fill_(scheduler.get_last_lr()[0])
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.soak
def test_a_step_goes_on_from_a_file(tmp_path):
    model, optimizer, step = task(OPTIMIZERS["AdamW"])
    batch = Dim("batch", max=64)
    x, y = torch.tensor(X), torch.tensor(Y)
    state = {"model": model, "optimizer": optimizer}
    program = export(step, (x, y), state=state, dynamic_shapes=({0: batch}, {0: batch}))
    program(x, y)
    save(program, tmp_path / "step.pt2")
    loaded = load(tmp_path / "step.pt2")
    torch.manual_seed(4)
    found = [loaded(x[:n], y[:n]).item() for n in (6, 5)]
    torch.manual_seed(4)
    np.testing.assert_allclose(found, [step(x[:n], y[:n]).item() for n in (6, 5)], rtol=1e-5)
    assert loaded.state_dict["model.0.weight"].requires_grad


class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


JAX_ALONE = """
import json, sys
import jax, jax.export
import numpy as np

jax.config.update("jax_enable_x64", True)
file = np.load(sys.argv[1])
about = json.loads(file["about.json"])
program = jax.export.deserialize(bytearray(file["program"]))
state = {name: file[f"state/{name}"].view(jax.numpy.dtype(kind["dtype"])) for name, kind in about["state"].items()}

losses = []
for _ in range(4):
    (loss,), changed = program.call(state, np.load(sys.argv[2]), np.load(sys.argv[3]))
    state |= changed
    losses.append(float(loss))
assert "weft" not in sys.modules
print(json.dumps(losses))
"""


def in_a_fresh_process(folder, program, x, y):
    save(program, folder / "step.pt2")
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    command = [sys.executable, "-c", JAX_ALONE, "step.pt2", "x.npy", "y.npy"]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)


def test_jax_alone_trains_on(tmp_path):
    model, optimizer, step = task(OPTIMIZERS["AdamW"])
    model[0].to(torch.bfloat16)
    model.insert(1, Cast(torch.float32))
    x, y = torch.tensor(X), torch.tensor(Y)
    model.insert(0, Cast(torch.bfloat16))
    program = export(step, (x, y), state={"model": model, "optimizer": optimizer})
    torch.manual_seed(3)
    found = in_a_fresh_process(tmp_path, program, X, Y)
    np.testing.assert_allclose(found, [step(x, y).item() for _ in range(4)], rtol=2e-2)


@pytest.mark.soak
def test_a_gpt_trains_in_a_process_without_weft(tmp_path):
    path = [ROOT / "src", *sys.path[1:]]  # for the first process alone
    printed = []
    for name, folders in (("export_gpt.py", path), ("run_exported.py", [p for p in path if p != ROOT / "src"])):
        command = [sys.executable, str(ROOT / "examples" / name), str(tmp_path / "gpt.pt2"), "--steps", "4"]
        variables = {**os.environ, "PYTHONPATH": ":".join(map(str, folders))}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, cwd=tmp_path)
        printed.append([float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")])
    assert len(printed[0]) == 4
    assert printed[0][-1] < printed[0][0]
    np.testing.assert_allclose(*printed, rtol=1e-5)


def test_a_step_that_makes_its_state_must_have_been_taken():
    class Mine(torch.optim.Optimizer):
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p].setdefault("sum", torch.zeros_like(p)).add_(p.grad)

    model = nn.Linear(4, 3)
    optimizer = Mine(model.parameters(), {})

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        with torch.no_grad():
            optimizer.step()

    with pytest.raises(
        ProgramError, match="the step of Mine makes its state while it is recorded; take one step with it"
    ):
        export(step, (torch.ones(2, 4),), state=[model, optimizer])
    step(torch.ones(2, 4))
    program = export(step, (torch.ones(2, 4),), state=[model, optimizer])
    program(torch.ones(2, 4))
    assert optimizer.state[model.bias]["sum"].tolist() == [4, 4, 4]


def test_state_that_cannot_be():
    with pytest.raises(
        ArgumentError, match="state must be modules, optimizers, tensors, or lists and dicts of these, but a is"
    ):
        export(lambda: None, (), state={"a": 3})
    x = torch.zeros(4)
    with pytest.raises(ProgramError, match="it writes to 'a', which shares its elements with 'b'"):
        export(lambda: x.add_(1), (), state={"a": x, "b": x[:2]})


def forgotten(**options):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **options)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


@pytest.mark.parametrize("steps", [0, 1])
def test_an_optimizer_that_is_not_named(steps):
    model, optimizer, step = forgotten(momentum=0.9)
    x = torch.ones(3, 2)
    for _ in range(steps):
        step(x)
    before = {p: dict(entry) for p, entry in optimizer.state.items()}
    with pytest.raises(
        ProgramError, match=r"it writes to a tensor.* from outside.*state=\{'model': model, 'optimizer'"
    ):
        export(step, (x,), state={"model": model})
    assert dict(optimizer.state) == before
    losses = [step(x).item() for _ in range(3 - steps)]
    _, _, plain = forgotten(momentum=0.9)
    assert losses == [plain(x).item() for _ in range(3)][steps:]
    export(step, (x,), state={"model": model, "optimizer": optimizer})


def test_an_optimizer_that_is_not_named_is_as_before_a_failure():
    model, optimizer, step = forgotten(momentum=0.9)

    def fails(x):
        step(x)
        optimizer.param_groups[0]["lr"] = 7.0
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        export(fails, (torch.ones(3, 2),), state=[model])
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_an_optimizer_without_state_need_not_be_named():
    model, optimizer, step = forgotten()
    _, _, plain = forgotten()
    x = torch.ones(3, 2)
    program = export(step, (x,), state={"model": model})
    np.testing.assert_allclose([program(x).item() for _ in range(3)], [plain(x).item() for _ in range(3)], rtol=1e-6)
    assert not any(optimizer.state.values())


def test_a_function_may_make_an_optimizer():
    def adapted(x):
        w = torch.zeros(2, requires_grad=True)
        inner = torch.optim.SGD([w], lr=0.1, momentum=0.9)
        for _ in range(2):
            inner.zero_grad()
            (w - x).square().sum().backward()
            inner.step()
        return w.detach()

    x = torch.tensor([1.0, 2.0])
    np.testing.assert_allclose(export(adapted, (torch.zeros(2),))(x).numpy(), adapted(x).numpy(), rtol=1e-6)


def test_python_numbers_of_an_optimizer():
    class Mine(torch.optim.Optimizer):
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p]["turn"] = self.state[p].get("turn", 0) + 1
                p.sub_(p.grad / self.state[p]["turn"])

    model = nn.Linear(4, 1)
    optimizer = Mine(model.parameters(), {})

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        with torch.no_grad():
            optimizer.step()

    step(torch.ones(2, 4))
    named = r"changes 'o\.state\.0\.turn', 'o\.state\.1\.turn': Python numbers, which stay as they are in a program"
    with pytest.warns(UserWarning, match=named):
        export(step, (torch.ones(2, 4),), state={"model": model, "o": optimizer})
    with pytest.warns(UserWarning, match=r"changes 'Mine\.state\.0\.turn', 'Mine\.state\.1\.turn'"):
        export(step, (torch.ones(2, 4),), state={"model": model})
    assert [entry["turn"] for entry in optimizer.state.values()] == [1, 1]
