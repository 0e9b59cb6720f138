"""Mamba: a recurrence of states instead of attention; training and greedy text from a cache."""

import torch
from common import fill, show, train
from transformers import MambaConfig, MambaForCausalLM

config = MambaConfig(
    vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2, bos_token_id=1, eos_token_id=2, pad_token_id=0
)
model = fill(MambaForCausalLM(config))
ids = torch.arange(16).reshape(2, 8)
train(model, lambda: model(input_ids=ids, labels=ids).loss)
model.eval()
show("greedy", model.generate(ids[:, :4], max_new_tokens=6, do_sample=False))
