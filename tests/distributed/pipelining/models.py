"""A small language model as stages, and what training it in one process gives."""

from __future__ import annotations

import copy

import weft as torch
from tests.distributed.tensor.test_dtensor import Block
from weft import nn
from weft.distributed.pipelining import PipelineStage

WORDS, WIDTH, HEADS, LAYERS = 16, 8, 2, 4


class Language(nn.Module):
    """Embedding, blocks and head; each of them may be missing, as in a stage."""

    def __init__(self, layers=LAYERS):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleDict({str(layer): Block(WIDTH, HEADS) for layer in range(layers)})
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False))

    def forward(self, x):
        if self.words is not None:
            x = self.words(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(x)


def cross_entropy(scores, targets):
    return nn.functional.cross_entropy(scores.view(-1, WORDS), targets.view(-1))


def whole_model(seed=0):
    torch.manual_seed(seed)
    return Language().double()


def part_of(model, index, count):
    """The stage `index` of `count` of a model: a copy of its parts, with the same names."""
    part = copy.deepcopy(model)
    per_stage = LAYERS // count
    for layer in range(LAYERS):
        if layer // per_stage != index:
            del part.blocks[str(layer)]
    if index:
        part.words = None
    if index < count - 1:
        part.head = None
    return part


def stages_of(model, indices, count, **options):
    return [PipelineStage(part_of(model, index, count), index, count, "cpu", **options) for index in indices]


def batches(steps, size=8):
    torch.manual_seed(1)
    return [(torch.randint(0, WORDS, (size, 4)), torch.randint(0, WORDS, (size, 4))) for _ in range(steps)]


def optimizer_of(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def trained(model, steps, size=8):
    """The losses of a training in one process."""
    optimizer, losses = optimizer_of(model.parameters()), []
    for tokens, targets in batches(steps, size):
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained_by(schedule, stages, steps, size=8):
    """The losses of a training by a schedule on this rank's stages; empty but on the last stage's rank."""
    optimizer = optimizer_of([p for stage in stages for p in stage.submod.parameters()])
    means = []
    for tokens, targets in batches(steps, size):
        optimizer.zero_grad()
        losses = []
        schedule.step(tokens, target=targets, losses=losses)
        optimizer.step()
        means += [torch.stack(losses).mean().item()] if losses else []
    return means
