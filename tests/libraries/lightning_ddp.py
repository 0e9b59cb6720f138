"""lightning: two processes with gloo, whose gradients are averaged; and `predict` in each."""

import logging
import tempfile
import warnings

import lightning
import torch
from common import fill, show, steps, waves
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        self.losses = []

    def on_train_start(self):
        self.clock = steps() if self.global_rank == 0 else iter(())

    def training_step(self, batch, index):
        next(self.clock, None)
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(self.all_gather(loss.detach()).mean().item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def predict_step(self, batch, index):
        return self.net(batch[0])


def main() -> None:
    loader = DataLoader(TensorDataset(waves(24, 4), torch.arange(24) % 3), batch_size=2)
    model = fill(Classifier())
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(model, loader)
        predictions = trainer.predict(model, loader)
    if trainer.is_global_zero:
        show("losses", *model.losses[:6])
        show("predictions", *predictions[:2])


if __name__ == "__main__":
    main()
