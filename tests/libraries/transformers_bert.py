"""BERT: training on masked words, and a classifier with a mask of padding."""

import torch
from common import fill, show, train
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

config = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=32,
    num_labels=3,
)
model = fill(BertForMaskedLM(config))
ids = torch.arange(16).reshape(2, 8)
train(model, lambda: model(input_ids=ids, labels=ids).loss)

classifier = fill(BertForSequenceClassification(config))
mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
out = classifier(input_ids=ids, attention_mask=mask, labels=torch.tensor([0, 2]))
out.loss.backward()
show("logits", out.logits)
show("gradient", classifier.bert.embeddings.word_embeddings.weight.grad.norm())
