"""opacus: private training: gradients of single samples, clipped, with noise 0, and what has been spent."""

import warnings

import torch
from common import fill, show, steps, waves
from opacus import GradSampleModule, PrivacyEngine
from opacus.validators import ModuleValidator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


def network() -> nn.Module:
    return fill(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 8),
            nn.LayerNorm(8),
            nn.Linear(8, 3),
        )
    )


inputs, labels = waves(8, 1, 4, 4), torch.arange(8) % 3
for mode in "hooks", "functorch":
    model = GradSampleModule(network(), force_functorch=mode == "functorch")
    nn.functional.cross_entropy(model(inputs), labels).backward()
    show(mode, *[parameter.grad_sample.flatten(1).norm(dim=1) for parameter in model.parameters()])
show("faults", len(ModuleValidator.validate(nn.BatchNorm1d(3), strict=False)))

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=DataLoader(TensorDataset(inputs, labels), batch_size=4),
    noise_multiplier=0.0,
    max_grad_norm=0.5,
    poisson_sampling=False,
)
losses, clock = [], steps(8)
for _ in range(5):
    for x, y in loader:
        next(clock, None)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
show("losses", *losses[:4])
