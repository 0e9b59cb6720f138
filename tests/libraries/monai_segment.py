"""monai: a small UNet trained on volumes with a Dice loss, sliding windows, transforms and metrics."""

import torch
from common import fill, show, train, waves
from monai.data import DataLoader, Dataset
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss
from monai.metrics import DiceMetric, HausdorffDistanceMetric
from monai.networks.nets import UNet
from monai.transforms import (
    AsDiscrete,
    Compose,
    CropForegroundd,
    EnsureChannelFirstd,
    NormalizeIntensityd,
    Resized,
    Rotate90d,
    ScaleIntensityd,
    SpatialPadd,
)

transforms = Compose(
    [
        EnsureChannelFirstd(["image", "label"], channel_dim="no_channel"),
        ScaleIntensityd("image"),
        CropForegroundd(["image", "label"], source_key="label"),
        NormalizeIntensityd("image"),
        Rotate90d(["image", "label"], spatial_axes=(0, 1)),
        SpatialPadd(["image", "label"], (16, 16, 8)),
        Resized(["image", "label"], (16, 16, 8), mode=("trilinear", "nearest")),
    ]
)
entries = []
for at in range(2):
    label = torch.zeros(20, 18, 8)
    label[2:14, 3 + at : 15, 1:7] = 1
    entries.append({"image": waves(20, 18, 8) * (at + 1) + label, "label": label})
batch = next(iter(DataLoader(Dataset(entries, transforms), batch_size=2)))
images, labels = batch["image"].as_tensor(), batch["label"].as_tensor()
show("transformed", images.shape, images.mean((1, 2, 3, 4)), images.std(), labels.sum((1, 2, 3, 4)))

model = fill(UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1))
loss = DiceCELoss(to_onehot_y=True, softmax=True)
model.eval()
with torch.no_grad():
    windows = sliding_window_inference(waves(1, 1, 20, 20, 8), (16, 16, 8), 2, model, overlap=0.5, mode="gaussian")
show("windows", windows.shape, windows.mean((0, 2, 3, 4)), windows[0, :, 7, 7, 3])
choose = AsDiscrete(argmax=True, to_onehot=2)
chosen = torch.stack([choose(out) for out in model(images)])
truth = torch.stack([AsDiscrete(to_onehot=2)(label) for label in labels])
show("chosen", chosen.sum((2, 3, 4)))
show("metrics", DiceMetric(include_background=False)(truth, truth.roll(1, 2)), DiceMetric()(chosen, truth))
show("distance", HausdorffDistanceMetric(include_background=False)(truth, truth.roll(2, 3)))
show("dice", DiceLoss(sigmoid=True)(model(images), truth))
model.train()
train(model, lambda: loss(model(images), labels))
