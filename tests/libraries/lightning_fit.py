"""lightning: `Trainer.fit` on the CPU, with validation and a checkpoint."""

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
        self.losses, self.clock = [], steps()

    def training_step(self, batch, index):
        next(self.clock, None)
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


loader = DataLoader(TensorDataset(waves(24, 4), torch.arange(24) % 3), batch_size=4)
model = fill(Classifier())
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        gradient_clip_val=1.0,
    )
    trainer.fit(model, loader, loader)
    show("losses", *model.losses)
    show("validation", trainer.callback_metrics["val_loss"])
    trainer.save_checkpoint(f"{folder}/last.ckpt")
    again = Classifier.load_from_checkpoint(f"{folder}/last.ckpt", weights_only=True)
show("loaded", torch.equal(again.net(waves(2, 4)), model.net(waves(2, 4))))
