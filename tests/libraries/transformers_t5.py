"""T5: encoder and decoder with relative positions; training and greedy text."""

import torch
from common import fill, show, train
from transformers import T5Config, T5ForConditionalGeneration

config = T5Config(
    vocab_size=64,
    d_model=32,
    d_kv=8,
    d_ff=64,
    num_layers=2,
    num_heads=4,
    decoder_start_token_id=0,
    dropout_rate=0.0,
)
model = fill(T5ForConditionalGeneration(config))
ids = torch.arange(2, 18).reshape(2, 8)
train(model, lambda: model(input_ids=ids, labels=ids[:, :5].contiguous()).loss)
model.eval()
show("tokens", model.generate(ids, max_new_tokens=5, do_sample=False))
