"""torchaudio: spectrograms, mel and MFCC features, resampling, filters, an inverse, with gradients."""

import torch
import torchaudio
from common import show, waves
from torchaudio import functional as F
from torchaudio import transforms as T

sound = (waves(2, 800) * (torch.arange(800) * 0.01).cos()).requires_grad_()
show("spectrogram", T.Spectrogram(n_fft=64, hop_length=32)(sound)[0, :, :3])
mel = T.MelSpectrogram(8000, n_fft=128, hop_length=64, n_mels=10)(sound)
show("mel", mel[0, :, :4])
show("decibel", T.AmplitudeToDB(top_db=60)(mel)[1, :, :2])
show("mfcc", T.MFCC(8000, n_mfcc=6, melkwargs={"n_fft": 128, "n_mels": 12, "hop_length": 64})(sound)[0, :, :3])
show("resample", T.Resample(8000, 6000)(sound)[0, ::20], F.resample(sound, 2, 3)[1, ::40])
a, b = torch.tensor([1.0, -0.5, 0.2]), torch.tensor([0.3, 0.1, 0.2])
filtered = F.lfilter(sound, a, b, clamp=False)
show("lfilter", filtered[0, ::40], F.lowpass_biquad(sound, 8000, 1000)[1, ::40])
show("filtfilt", F.filtfilt(sound, a, b, clamp=False)[0, ::50])
(filtered.square().mean() + mel.log1p().mean()).backward()
show("gradient", sound.grad[0, ::40])
sound = sound.detach()
show("fade", T.Fade(100, 100)(sound)[0, ::50], T.Vol(0.5)(sound).sum())
spectrum = T.Spectrogram(n_fft=64, power=None)(sound)
show("inverse", (T.InverseSpectrogram(n_fft=64)(spectrum, 800) - sound).abs().max() < 1e-4)
show("stretch", T.TimeStretch(n_freq=33, fixed_rate=1.3)(spectrum).abs()[0, ::4, :3])
show("delta", F.compute_deltas(mel.detach())[0, :, :2], F.melscale_fbanks(20, 0.0, 4000.0, 8, 8000)[::3])
show("mulaw", F.mu_law_encoding(sound, 256)[0, ::40], F.mu_law_decoding(F.mu_law_encoding(sound, 256), 256)[0, ::40])
model = torchaudio.models.Wav2Letter(num_classes=5, input_type="mfcc", num_features=6)
show("model", *model(waves(1, 6, 40)).shape)
