"""Qwen3-MoE: each word goes to two of four experts; training with the loss of balance, and greedy text."""

import torch
from common import fill, show, train
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

config = Qwen3MoeConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    moe_intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
    output_router_logits=True,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
)
model = fill(Qwen3MoeForCausalLM(config))
ids = torch.arange(16).reshape(2, 8)
train(model, lambda: model(input_ids=ids, labels=ids).loss)
model.eval()
model.config.output_router_logits = False
show("greedy", model.generate(ids[:, :4], max_new_tokens=6, do_sample=False, pad_token_id=0))
