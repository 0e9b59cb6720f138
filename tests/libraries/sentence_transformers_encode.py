"""sentence-transformers: sentences encoded by a small BERT, their similarities, and steps of a contrastive loss."""

import tempfile
from pathlib import Path

import torch
from common import fill, show, train
from sentence_transformers import SentenceTransformer, losses, models, util
from transformers import BertConfig, BertModel, BertTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a the cat dog sat ran on mat in park and red blue"
SENTENCES = ["the cat sat on the mat", "a dog ran in the park", "the red cat", "a blue dog and a red mat"]
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "vocab.txt").write_text(WORDS.replace(" ", "\n"))
    BertTokenizer(str(Path(folder, "vocab.txt"))).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(WORDS.split()),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    fill(BertModel(config)).save_pretrained(folder)
    words = models.Transformer(folder)
model = SentenceTransformer(modules=[words, models.Pooling(16), models.Normalize()], device="cpu")
fill(model)
vectors = model.encode(SENTENCES, convert_to_tensor=True, show_progress_bar=False)
show("vectors", vectors)
show("similarities", util.cos_sim(vectors, vectors))
show("found", [hit["corpus_id"] for hit in util.semantic_search(vectors[:1], vectors[1:], top_k=2)[0]])

loss = losses.MultipleNegativesRankingLoss(model)
queries, answers = (model.tokenize(part) for part in (SENTENCES[:2], SENTENCES[2:]))
train(model, lambda: loss([dict(queries), dict(answers)], torch.empty(0)))
