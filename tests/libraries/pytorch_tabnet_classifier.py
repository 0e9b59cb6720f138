"""pytorch-tabnet: sparse masks, a network for tables with ghost norms, training, what explains a row."""

import tempfile

import numpy as np
import torch
from common import fill, show, train, waves
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.sparsemax import Entmax15, Sparsemax
from pytorch_tabnet.tab_model import TabNetClassifier
from pytorch_tabnet.tab_network import TabNet
from torch import nn

scores = waves(3, 5).requires_grad_()
sparse, entmax = Sparsemax(dim=-1)(scores), Entmax15(dim=-1)(scores)
(sparse * waves(3, 5) + entmax.square()).sum().backward()
show("masks", sparse, entmax, scores.grad)
groups = torch.eye(6)
model = fill(TabNet(6, 3, n_d=4, n_a=4, n_steps=2, virtual_batch_size=8, group_attention_matrix=groups))
x, labels = waves(16, 6), torch.arange(16) % 3


def loss_of() -> torch.Tensor:
    out, sparsity = model(x)
    return nn.functional.cross_entropy(out, labels) - 1e-3 * sparsity


train(model, loss_of)
model.eval()
with torch.no_grad():
    show("explained", *model.forward_masks(x[:2])[0])

classifier = TabNetClassifier(n_d=4, n_a=4, n_steps=2, verbose=0, seed=0, device_name="cpu")
features, classes = x.numpy(), labels.numpy()
sizes = {"batch_size": 8, "virtual_batch_size": 4}
classifier.fit(features, classes, eval_set=[(features, classes)], max_epochs=3, **sizes)
show("epochs", len(classifier.history["loss"]), classifier.feature_importances_.sum())
with tempfile.TemporaryDirectory() as folder:
    again = TabNetClassifier()
    again.load_model(classifier.save_model(f"{folder}/tabnet"))
show("loaded", np.allclose(again.predict_proba(features), classifier.predict_proba(features)))
pretrainer = TabNetPretrainer(n_d=4, n_a=4, n_steps=2, verbose=0, seed=0, device_name="cpu")
pretrainer.fit(features, max_epochs=2, **sizes)
show("pretrained", *pretrainer.predict(features)[0].shape)
