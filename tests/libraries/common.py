"""What the programs share: weights that do not depend on random numbers, and results and times as lines."""

import statistics
import time

import torch


def fill(module: torch.nn.Module) -> torch.nn.Module:
    """The module with weights that are waves, and without dropout."""
    with torch.no_grad():
        for at, (name, parameter) in enumerate(module.named_parameters()):
            wave = (torch.arange(parameter.numel(), dtype=torch.float64) * (0.7 + 0.01 * at)).sin()
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 100
            centre = 1 if parameter.ndim == 1 and name.endswith("weight") else 0
            parameter.copy_((centre + wave / fan_in**0.5).reshape(parameter.shape))
    for layer in module.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    return module


def waves(*shape: int) -> torch.Tensor:
    """An input of this shape."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.3).cos().reshape(shape).float()


def show(name: str, *values: object) -> None:
    """Print a result: numbers, tensors, lists."""
    numbers = [number for value in values for number in torch.as_tensor(value).detach().flatten().tolist()]
    print("result", name, *numbers)


def steps(count: int = 10):
    """Count steps, and print the median of the processor seconds of those after the third.

    Where a library has the loop, what it calls in each step asks for the next number: `next(clock, None)`.
    """
    seconds = []
    for step in range(count):
        start = time.process_time()
        yield step
        seconds.append(time.process_time() - start)
    print("time", "step", statistics.median(seconds[3:]))


def train(module: torch.nn.Module, loss_of, optimizer=torch.optim.AdamW) -> None:
    """Steps of training, and the losses of the first three: in the others, which give the time, rounding may grow."""
    opt = optimizer(module.parameters(), lr=1e-2)
    losses = []
    for _ in steps():
        opt.zero_grad()
        loss = loss_of()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    show("losses", *losses[:3])
