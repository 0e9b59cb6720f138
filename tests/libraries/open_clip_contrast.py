"""open_clip: a small CLIP, its tokens, and steps of training with the contrastive loss."""

import torch
from common import fill, show, train, waves
from open_clip import CLIP, ClipLoss, CLIPTextCfg, CLIPVisionCfg, SimpleTokenizer, get_input_dtype

tokens = SimpleTokenizer(context_length=16)(["a photo of a cat", "two dogs", "the sea at night"])
show("tokens", tokens, get_input_dtype("amp") == torch.float32)
text = CLIPTextCfg(context_length=16, vocab_size=49408, width=16, heads=2, layers=2)
vision = CLIPVisionCfg(layers=2, width=16, head_width=8, patch_size=4, image_size=16)
model = fill(CLIP(embed_dim=12, vision_cfg=vision, text_cfg=text))
with torch.no_grad():
    model.logit_scale.fill_(2.0)
images, loss = waves(3, 3, 16, 16), ClipLoss()
images[1] *= 2
images[2] = images[2].flip(-1)
show("images", model.encode_image(images, normalize=True))
show("texts", model.encode_text(tokens, normalize=True))
train(model, lambda: loss(*model(images, tokens)))
