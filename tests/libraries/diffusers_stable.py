"""diffusers: a small Stable Diffusion pipeline, from a text's tokens to an image, with guidance."""

import torch
from common import fill, show, waves
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

unet = UNet2DConditionModel(
    sample_size=8,
    block_out_channels=(8, 16),
    layers_per_block=1,
    norm_num_groups=4,
    cross_attention_dim=16,
    attention_head_dim=4,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
)
vae = AutoencoderKL(
    block_out_channels=(8, 16),
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    norm_num_groups=4,
)
text = CLIPTextModel(
    CLIPTextConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=8,
        bos_token_id=1,
        eos_token_id=49,
    )
)
pipeline = StableDiffusionPipeline(
    vae=fill(vae),
    text_encoder=fill(text),
    tokenizer=None,
    unet=fill(unet),
    scheduler=DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False),
    safety_checker=None,
    feature_extractor=None,
    requires_safety_checker=False,
)
pipeline.set_progress_bar_config(disable=True)
tokens = torch.tensor([[1, 7, 9, 20, 3, 49, 49, 49], [1, 49, 49, 49, 49, 49, 49, 49]])
wanted, unwanted = text(tokens)[0].chunk(2)
show("text", wanted.mean(1))
images = pipeline(
    prompt_embeds=wanted,
    negative_prompt_embeds=unwanted,
    latents=waves(1, 4, 8, 8),
    num_inference_steps=5,
    guidance_scale=4.0,
    output_type="pt",
).images
show("image", images[0, :, ::4, ::4])
