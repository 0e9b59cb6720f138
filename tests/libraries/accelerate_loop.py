"""accelerate: a plain loop of training, accumulated gradients, clipping, a saved state."""

import tempfile

import torch
from accelerate import Accelerator
from common import fill, show, steps, waves
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = fill(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=4)
loader = DataLoader(TensorDataset(waves(24, 4), torch.arange(24) % 3), batch_size=4)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
losses, clock = [], steps()
for _ in range(2):
    for inputs, labels in loader:
        next(clock, None)
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather_for_metrics(loss.detach()).mean().item())
show("losses", *losses)
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    before = model(waves(2, 4))
    fill(accelerator.unwrap_model(model))
    accelerator.load_state(folder)
show("state", torch.equal(model(waves(2, 4)), before))
