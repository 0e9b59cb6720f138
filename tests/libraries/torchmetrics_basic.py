"""torchmetrics: metrics over batches, and a collection."""

import torch
from common import show, waves
from torchmetrics import MeanMetric, MeanSquaredError, MetricCollection
from torchmetrics.classification import (
    BinaryAUROC,
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)
from torchmetrics.functional import pearson_corrcoef

scores, labels = waves(8, 4), torch.arange(8) % 4
metrics = MetricCollection(
    {
        "accuracy": MulticlassAccuracy(num_classes=4),
        "f1": MulticlassF1Score(num_classes=4),
        "confusion": MulticlassConfusionMatrix(num_classes=4),
    }
)
for batch in range(2):
    metrics.update(scores[batch * 4 : batch * 4 + 4], labels[batch * 4 : batch * 4 + 4])
for name, value in metrics.compute().items():
    show(name, value)
mse = MeanSquaredError()
show("mse", mse(scores, scores * 0.5), mse.compute())
mse.reset()
mean = MeanMetric()
mean.update(scores)
show("mean", mean.compute())
show("auroc", BinaryAUROC()(scores[:, 0].sigmoid(), (labels > 1).long()))
show("pearson", pearson_corrcoef(scores[:, 0], scores[:, 1]))
