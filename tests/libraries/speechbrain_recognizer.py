"""speechbrain: features, a recognizer of convolutions and recurrences trained by CTC, losses of sequences, metrics, a Brain."""

import tempfile

import speechbrain as sb
import torch
from common import fill, show, train, waves
from speechbrain.dataio.batch import PaddedBatch
from speechbrain.decoders.ctc import ctc_greedy_decode
from speechbrain.lobes.features import MFCC, Fbank
from speechbrain.lobes.models.CRDNN import CRDNN
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.losses import ctc_loss, kldiv_loss, nll_loss
from speechbrain.processing.features import InputNormalization
from torch import nn

sound = waves(2, 3200) * (torch.arange(3200) * 0.003).cos()
features = Fbank(n_mels=16)(sound)
show("features", features[0, ::5, ::4], MFCC(n_mels=12, n_mfcc=5)(sound)[0, ::5, ::7])
lengths = torch.tensor([1.0, 0.7])
normal = InputNormalization(norm_type="sentence")(features, lengths)
show("normal", normal[1, ::5, ::4])
