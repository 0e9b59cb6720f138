"""Llama: rotary positions, grouped heads, a cache of keys and values; training and greedy text."""

import torch
from common import fill, show, train
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
)
model = fill(LlamaForCausalLM(config))
ids = torch.arange(16).reshape(2, 8)
train(model, lambda: model(input_ids=ids, labels=ids).loss)
model.eval()
show("greedy", model.generate(ids[:, :4], max_new_tokens=6, do_sample=False, pad_token_id=0))
left = torch.tensor([[0, 0, 3, 4], [5, 6, 7, 8]])
mask = (left != 0).long()
tokens = model.generate(left, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)
show("padded", tokens)
beams = model.generate(ids[:, :3], max_new_tokens=4, num_beams=3, do_sample=False, pad_token_id=0)
show("beams", beams)
with torch.no_grad():
    cached = model(ids[:, :6], use_cache=True)
    after = model(ids[:, 6:], past_key_values=cached.past_key_values).logits
    whole = model(ids).logits[:, 6:]
show("cache", (after - whole).abs().max() < 1e-4)
