"""Llava: the features of a picture among the words; training and greedy text."""

import torch
from common import fill, show, train, waves
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

config = LlavaConfig(
    vision_config=CLIPVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8
    ),
    text_config=LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    image_token_index=63,
    vision_feature_layer=-1,
)
model = fill(LlavaForConditionalGeneration(config))
ids = torch.tensor([[1, 63, 63, 63, 63, 5, 6, 7], [1, 9, 63, 63, 63, 63, 8, 4]])
pixels = waves(2, 3, 16, 16)
train(model, lambda: model(input_ids=ids, pixel_values=pixels, labels=ids).loss)
model.eval()
show("greedy", model.generate(ids, pixel_values=pixels, max_new_tokens=5, do_sample=False, pad_token_id=0))
