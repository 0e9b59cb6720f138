"""The models whose first training step is measured: `build(framework)` gives a function that makes one step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.workloads import Run, gpt, mlp, training_step, unet


def resnet50(torch: Any, *, compiled: bool = False) -> Run:
    """ResNet-50's blocks on 64×64 images, batch 4, SGD with momentum."""
    nn = torch.nn
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, channels: int, narrow: int, stride: int) -> None:
            super().__init__()
            wide = 4 * narrow
            self.body = nn.Sequential(
                nn.Conv2d(channels, narrow, 1, bias=False),
                nn.BatchNorm2d(narrow),
                nn.ReLU(),
                nn.Conv2d(narrow, narrow, 3, stride, 1, bias=False),
                nn.BatchNorm2d(narrow),
                nn.ReLU(),
                nn.Conv2d(narrow, wide, 1, bias=False),
                nn.BatchNorm2d(wide),
            )
            self.skip = nn.Identity()
            if stride != 1 or channels != wide:
                self.skip = nn.Sequential(nn.Conv2d(channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.skip(x))

    blocks, channels = [], 64
    for narrow, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for at in range(count):
            blocks.append(Block(channels, narrow, first if at == 0 else 1))
            channels = 4 * narrow
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 1000),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 1000, (4,))
    loss = nn.functional.cross_entropy
    return training_step(torch, model, optimizer, lambda out: loss(out, labels), (images,), compiled)


def bert(torch: Any, *, compiled: bool = False) -> Run:
    """BERT-base: 12 layers, d 768, 12 heads, vocabulary 30,522; T 64, batch 2, AdamW."""
    nn = torch.nn
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(30522, 768), nn.Embedding(512, 768)
            self.norm, self.drop = nn.LayerNorm(768), nn.Dropout(0.1)
            layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
            self.body = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
            self.head = nn.Linear(768, 2)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            return self.head(self.body(self.drop(self.norm(x)))[:, 0])

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids, labels = torch.randint(0, 30522, (2, 64)), torch.randint(0, 2, (2,))
    loss = nn.functional.cross_entropy
    return training_step(torch, model, optimizer, lambda out: loss(out, labels), (ids,), compiled)


MODELS: dict[str, Callable[..., Run]] = {
    "MLP": mlp,
    "GPT": gpt,
    "ResNet-50": resnet50,
    "BERT-base": bert,
    "U-Net": partial(unet, widths=(32, 64, 128, 256), batch=4),
}
