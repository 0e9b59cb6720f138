"""ultralytics: YOLO11 from its description, in float64: losses of detection in training, and boxes."""

import os
import tempfile

import torch
from common import fill, show, steps, waves

settings = tempfile.TemporaryDirectory()
os.environ["YOLO_CONFIG_DIR"] = settings.name

from ultralytics.cfg import get_cfg  # noqa: E402
from ultralytics.nn.tasks import DetectionModel  # noqa: E402

model = fill(DetectionModel("yolo11n.yaml", nc=3, verbose=False)).double()
model.args = get_cfg()
batch = {
    "img": waves(2, 3, 64, 64).double().abs(),
    "batch_idx": torch.tensor([0.0, 0.0, 1.0]),
    "cls": torch.tensor([[0.0], [2.0], [1.0]]),
    "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.3], [0.3, 0.6, 0.2, 0.2], [0.6, 0.4, 0.5, 0.7]]),
}
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
parts = []
for _ in steps(8):
    optimizer.zero_grad()
    loss, items = model(batch)
    loss.sum().backward()
    optimizer.step()
    parts += items.values()
show("losses", *parts[:6])
model.eval()
with torch.no_grad():
    show("boxes", model(waves(1, 3, 64, 64).double())[0][0, :, ::7])
