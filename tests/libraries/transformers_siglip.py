"""SigLIP: pictures and texts in pairs, by a loss of sigmoids; training, and likenesses of all pairs."""

import torch
from common import fill, show, train, waves
from transformers import SiglipConfig, SiglipModel

sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
config = SiglipConfig(
    text_config={**sizes, "vocab_size": 64, "max_position_embeddings": 16, "projection_size": 32},
    vision_config={**sizes, "image_size": 16, "patch_size": 4},
)
model = fill(SiglipModel(config))
ids, pixels = torch.arange(24).reshape(3, 8), waves(3, 3, 16, 16)
train(model, lambda: model(input_ids=ids, pixel_values=pixels, return_loss=True).loss)
model.eval()
with torch.no_grad():
    out = model(input_ids=ids, pixel_values=pixels)
show("logits", out.logits_per_image)
