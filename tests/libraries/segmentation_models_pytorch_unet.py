"""segmentation-models-pytorch: a Unet and an FPN on ResNet-18 without weights, losses, metrics, and training."""

import segmentation_models_pytorch as smp
import torch
from common import fill, show, train, waves

images = waves(2, 3, 32, 32)
images[1] = images[1].flip(-1).square()
masks = (torch.arange(2 * 32 * 32) // 50 % 2).reshape(2, 1, 32, 32)
fpn = fill(smp.FPN("resnet18", encoder_weights=None, classes=1)).eval()
with torch.no_grad():
    show("fpn", fpn(images)[:, :, ::8, ::8])
model = fill(smp.Unet("resnet18", encoder_weights=None, decoder_channels=(32, 16, 8, 8, 8), classes=1))
dice = smp.losses.DiceLoss("binary")
focal = smp.losses.FocalLoss("binary")
with torch.no_grad():
    out = model.eval()(images)
model.train()
show("unet", out[:, :, ::8, ::8])
for name in ("JaccardLoss", "TverskyLoss", "LovaszLoss"):
    show(name, getattr(smp.losses, name)("binary")(out, masks))
counts = smp.metrics.get_stats((out.sigmoid() > 0.5).long(), masks, mode="binary")
show("counts", *counts)
show("iou", smp.metrics.iou_score(*counts, reduction="micro"), smp.metrics.f1_score(*counts, reduction="macro"))


def loss():
    out = model(images)
    return dice(out, masks) + focal(out, masks)


model.double()  # normalized, waves that are nearly constant would show the rounding of float32
images = images.double()
train(model, loss)
