"""A vision transformer: training on images."""

import torch
from common import fill, train, waves
from transformers import ViTConfig, ViTForImageClassification

config = ViTConfig(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    image_size=16,
    patch_size=4,
    num_labels=5,
)
model = fill(ViTForImageClassification(config))
images, labels = waves(2, 3, 16, 16), torch.tensor([1, 3])
train(model, lambda: model(pixel_values=images, labels=labels).loss)
