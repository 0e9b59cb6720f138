"""GPT-2: training, greedy text, saved and loaded."""

import tempfile

import torch
from common import fill, show, train
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
model = fill(GPT2LMHeadModel(config))
ids = torch.arange(16).reshape(2, 8)
train(model, lambda: model(input_ids=ids, labels=ids).loss)
model.eval()
show("tokens", model.generate(ids[:, :4], max_new_tokens=5, do_sample=False, pad_token_id=0))
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = GPT2LMHeadModel.from_pretrained(folder)
show("loaded", again(input_ids=ids, labels=ids).loss)
