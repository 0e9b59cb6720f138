"""lightning: two processes with gloo, whose gradients are averaged; and `predict` in each."""

import logging
import tempfile
import warnings

import lightning
import torch
from common import fill, show, steps, waves
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
data = TensorDataset(waves(24, 4), torch.arange(24) % 3)


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

    def train_dataloader(self):
        return DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))

    def predict_dataloader(self):
        return self.train_dataloader()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def predict_step(self, batch, index):
        return self.net(batch[0])


def main() -> None:
    model = fill(Classifier())
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(model)
        predictions = trainer.predict(model)
    if trainer.is_global_zero:
        show("losses", *model.losses[:6])
        show("predictions", *predictions[:2])


if __name__ == "__main__":
    main()
