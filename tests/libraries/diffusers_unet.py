"""diffusers: an image by DDIM and a UNet, and steps of training it to remove noise."""

import torch
from common import fill, show, train, waves
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DConditionModel
from torch import nn

model = fill(
    UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=12,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
)
clean, noise, text = waves(2, 4, 8, 8), waves(2, 4, 8, 8).sin(), waves(2, 5, 12)
times = torch.tensor([10, 700])
noisy = DDPMScheduler(num_train_timesteps=1000).add_noise(clean, noise, times)
show("noisy", noisy.mean(), noisy.std())

scheduler, image = DDIMScheduler(num_train_timesteps=1000), noise
scheduler.set_timesteps(4)
with torch.no_grad():
    for time in scheduler.timesteps:
        image = scheduler.step(model(image, time, text).sample, time, image).prev_sample
show("image", image[:, :, 0])

train(model, lambda: nn.functional.mse_loss(model(noisy, times, text).sample, noise))
