"""captum: what inputs, neurons and layers contribute, by gradients, by paths and by leaving out."""

import torch
from captum.attr import (
    DeepLift,
    FeatureAblation,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerActivation,
    LayerConductance,
    LayerGradCam,
    NeuronGradient,
    NoiseTunnel,
    Occlusion,
    Saliency,
)
from common import fill, show, waves
from torch import nn

model = fill(
    nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
).eval()
x, base = waves(2, 1, 4, 4), torch.zeros(2, 1, 4, 4)
x.requires_grad_()
attributions, delta = IntegratedGradients(model).attribute(x, base, target=1, n_steps=20, return_convergence_delta=True)
show("integrated", attributions, delta.abs().max() < 0.01)
show("saliency", Saliency(model).attribute(x, target=2))
show("product", InputXGradient(model).attribute(x, target=torch.tensor([0, 3])))
show("guided", GuidedBackprop(model).attribute(x, target=1))
show("deeplift", DeepLift(model).attribute(x, base, target=1))
show("conductance", LayerConductance(model, model[0]).attribute(x, base, target=1, n_steps=10))
show("activation", LayerActivation(model, model[2]).attribute(x))
show("gradcam", LayerGradCam(model, model[0]).attribute(x, target=0))
show("neuron", NeuronGradient(model, model[2]).attribute(x, (1, 0, 1)))
show("ablation", FeatureAblation(model).attribute(x, base, target=1))
show("occlusion", Occlusion(model).attribute(x, (1, 2, 2), strides=(1, 2, 2), target=1))
show("noise", NoiseTunnel(Saliency(model)).attribute(x, nt_samples=2, stdevs=0.0, target=2))
