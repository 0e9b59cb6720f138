"""Losses, under PyTorch's import path."""

from weft.nn._linear_loss import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from weft.nn._loss import BCELoss as BCELoss
from weft.nn._loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from weft.nn._loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from weft.nn._loss import CrossEntropyLoss as CrossEntropyLoss
from weft.nn._loss import CTCLoss as CTCLoss
from weft.nn._loss import GaussianNLLLoss as GaussianNLLLoss
from weft.nn._loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from weft.nn._loss import HuberLoss as HuberLoss
from weft.nn._loss import KLDivLoss as KLDivLoss
from weft.nn._loss import L1Loss as L1Loss
from weft.nn._loss import MarginRankingLoss as MarginRankingLoss
from weft.nn._loss import MSELoss as MSELoss
from weft.nn._loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from weft.nn._loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from weft.nn._loss import MultiMarginLoss as MultiMarginLoss
from weft.nn._loss import NLLLoss as NLLLoss
from weft.nn._loss import NLLLoss2d as NLLLoss2d
from weft.nn._loss import PoissonNLLLoss as PoissonNLLLoss
from weft.nn._loss import SmoothL1Loss as SmoothL1Loss
from weft.nn._loss import SoftMarginLoss as SoftMarginLoss
from weft.nn._loss import TripletMarginLoss as TripletMarginLoss
from weft.nn._loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
