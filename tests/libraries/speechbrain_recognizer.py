"""speechbrain: features, a recognizer trained by CTC, an embedding of speakers, losses and error rates of sequences."""

import torch
from common import fill, show, train, waves
from speechbrain.decoders.ctc import ctc_greedy_decode
from speechbrain.lobes.features import MFCC, Fbank
from speechbrain.lobes.models.CRDNN import CRDNN
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.losses import ctc_loss, nll_loss
from speechbrain.processing.features import InputNormalization
from speechbrain.utils.metric_stats import ErrorRateStats
from torch import nn

sound, lengths = waves(2, 3200) * (torch.arange(3200) * 0.003).cos(), torch.tensor([1.0, 0.7])
features = Fbank(n_mels=16)(sound)
show("features", features[0, ::5, ::4], MFCC(n_mels=12, n_mfcc=5)(sound)[0, ::5, ::7])
features = InputNormalization(norm_type="sentence")(features, lengths)
show("normal", features[1, ::5, ::4])
network = CRDNN(
    input_size=16,
    cnn_blocks=1,
    cnn_channels=(4,),
    cnn_kernelsize=(3, 3),
    rnn_layers=1,
    rnn_neurons=8,
    rnn_bidirectional=True,
    dnn_blocks=1,
    dnn_neurons=8,
    dropout=0.0,
)
model = fill(nn.Sequential(network, Linear(input_size=8, n_neurons=6)))
words, word_lengths = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([1.0, 0.67])


def loss_of() -> torch.Tensor:
    return ctc_loss(model(features).log_softmax(-1), words, lengths, word_lengths, blank_index=0)


train(model, loss_of)
model.eval()
show("decoded", len(ctc_greedy_decode(model(features).log_softmax(-1), lengths, blank_id=0)))
speakers = fill(
    ECAPA_TDNN(16, channels=[8, 8, 8], kernel_sizes=[3, 3, 1], dilations=[1, 2, 1], attention_channels=4, lin_neurons=6)
).eval()
show("speaker", speakers(features, lengths))
show("nll", nll_loss(waves(2, 4, 6).log_softmax(-1), torch.arange(8).reshape(2, 4) % 6, lengths))
errors = ErrorRateStats()
errors.append(["a", "b"], [["x", "y", "z"], ["u", "v"]], [["x", "z"], ["u", "v"]])
show("errors", errors.summarize("error_rate"))
