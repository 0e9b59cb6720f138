"""pytorch-tabnet: a network for tables: sparse masks, training, what explains a row."""

import torch
from common import fill, show, train, waves
from pytorch_tabnet.sparsemax import Entmax15, Sparsemax
from pytorch_tabnet.tab_model import TabNetClassifier
from pytorch_tabnet.tab_network import TabNet

show("sparsemax", Sparsemax(dim=-1)(waves(3, 5)), Entmax15(dim=-1)(waves(3, 5)))
