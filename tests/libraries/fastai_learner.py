"""fastai: a learner on tensors, with one cycle of rates, metrics and callbacks."""

import torch
from common import fill, show, steps, waves
from fastai.callback.core import Callback
from fastai.callback.schedule import fit_one_cycle  # noqa: F401, it becomes a method of Learner
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from torch import nn

pairs = list(zip(waves(32, 4), torch.arange(32) % 3, strict=True))
loaders = DataLoaders(DataLoader(pairs, bs=4), DataLoader(pairs, bs=8), device="cpu")
model = fill(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3)))
clock, losses = steps(16), []


class Note(Callback):
    """The loss of each step."""

    def after_batch(self):
        if self.training:
            losses.append(self.loss.item())
            next(clock, None)


learner = Learner(loaders, model, loss_func=CrossEntropyLossFlat(), metrics=accuracy, cbs=Note())
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(2, 1e-2)
    show("losses", losses[:8])
    show("validation", learner.validate())
    show("predictions", learner.get_preds()[0][::8])
