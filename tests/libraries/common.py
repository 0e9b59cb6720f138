"""What the programs share: weights that do not depend on random numbers, and results as lines."""

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


def train(module: torch.nn.Module, loss_of, steps: int = 3, optimizer=torch.optim.AdamW) -> None:
    """Some steps of training, and the loss of each."""
    opt = optimizer(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = loss_of()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    show("losses", *losses)
