"""The trainer of transformers, and a generated text."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.utils import is_torch_available

assert is_torch_available()
shape = {"vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
data = [{"input_ids": torch.arange(8) + at, "labels": torch.arange(8) + at} for at in range(16)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, num_train_epochs=8, learning_rate=1e-2, report_to=[], use_cpu=True)
    trainer = Trainer(model, arguments, train_dataset=data)
    before = trainer.evaluate(data)["eval_loss"]
    trainer.train()
    assert trainer.evaluate(data)["eval_loss"] < before
assert model.generate(torch.tensor([[1, 2]]), max_new_tokens=3, do_sample=False).shape == (1, 5)
