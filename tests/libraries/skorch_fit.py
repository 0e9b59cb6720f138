"""skorch: a classifier and a regressor as scikit-learn has them, with a schedule, a checkpoint, and a pipeline."""

import tempfile

import numpy as np
import torch
from common import fill, show, steps, waves
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import Callback, Checkpoint, LRScheduler
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden: int = 8, out: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, out))
        fill(self)

    def forward(self, x):
        return self.layers(x)


class Clock(Callback):
    def on_train_begin(self, net, **options):
        self.clock = steps()

    def on_batch_begin(self, net, training=False, **options):
        if training:
            next(self.clock, None)


x, labels = waves(24, 4).numpy(), np.arange(24) % 3
options = {"lr": 0.05, "batch_size": 8, "train_split": None, "verbose": 0}
with tempfile.TemporaryDirectory() as folder:
    net = NeuralNetClassifier(
        Net,
        criterion=nn.CrossEntropyLoss,
        max_epochs=4,
        optimizer=torch.optim.Adam,
        iterator_train__shuffle=False,
        callbacks=[
            Clock(),
            LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=2),
            Checkpoint(monitor="train_loss_best", dirname=folder),
        ],
        **options,
    )
    net.fit(x, labels)
    show("losses", *net.history[:, "train_loss"])
    net.load_params(checkpoint=Checkpoint(dirname=folder))
    show("probabilities", net.predict_proba(x[:3]))
    again = NeuralNetClassifier(Net, criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, **options).initialize()
    again.load_params(checkpoint=Checkpoint(dirname=folder))
show("loaded", np.allclose(again.forward(x), net.forward(x)))
pipeline = Pipeline(
    [("scale", StandardScaler()), ("net", NeuralNetRegressor(Net, module__out=1, max_epochs=3, **options))]
)
pipeline.fit(x, waves(24, 1).numpy())
show("regression", pipeline.predict(x[:4]))
