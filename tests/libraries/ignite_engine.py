"""pytorch-ignite: a trainer and an evaluator, with metrics, a checkpoint, a schedule, early stopping and a loader."""

import tempfile

import torch
from common import fill, show, steps, waves
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, EarlyStopping, PiecewiseLinear
from ignite.metrics import Accuracy, ConfusionMatrix, Fbeta, Loss, Precision, Recall, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(waves(32, 4), torch.arange(32) % 3), batch_size=4)
model = fill(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
optimizer, loss = torch.optim.Adam(model.parameters(), lr=1e-2), nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, loss, device="cpu")
precision, recall = Precision(average=False), Recall(average=False)
metrics = {
    "accuracy": Accuracy(),
    "loss": Loss(loss),
    "confusion": ConfusionMatrix(3),
    "recall": recall,
    "fbeta": Fbeta(1.0, average=True, precision=precision, recall=recall),
}
evaluator = create_supervised_evaluator(model, metrics=metrics, device="cpu")
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "smoothed")
trainer.add_event_handler(
    Events.ITERATION_STARTED, PiecewiseLinear(optimizer, "lr", milestones_values=[(0, 1e-2), (16, 2e-3)])
)
losses, rates, validation, clock = [], [], [], steps(16)


@trainer.on(Events.ITERATION_COMPLETED)
def note(engine):
    losses.append(engine.state.output)
    rates.append(optimizer.param_groups[0]["lr"])
    next(clock, None)


@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    evaluator.run(loader)
    validation.append(evaluator.state.metrics)


stopping = EarlyStopping(patience=1, score_function=lambda engine: -engine.state.epoch, trainer=trainer)
evaluator.add_event_handler(Events.COMPLETED, stopping)
with tempfile.TemporaryDirectory() as folder:
    saver = Checkpoint({"model": model, "optimizer": optimizer}, folder, n_saved=1)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
    trainer.run(loader, max_epochs=2)
    saved = torch.load(saver.last_checkpoint, weights_only=True)
Checkpoint.load_objects({"model": model, "optimizer": optimizer}, saved)
show("losses", losses[:8])
show("rates", rates)
show("smoothed", trainer.state.metrics["smoothed"])
for name in metrics:
    show(name, validation[-1][name])
