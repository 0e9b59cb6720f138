"""x-transformers: a decoder with rotary positions and gated units; training, greedy text; an encoder of images."""

import torch
from common import fill, show, train, waves
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

model = fill(
    TransformerWrapper(
        num_tokens=64,
        max_seq_len=32,
        attn_layers=Decoder(
            dim=32,
            depth=2,
            heads=4,
            attn_dim_head=8,
            rotary_pos_emb=True,
            use_rmsnorm=True,
            ff_glu=True,
            attn_kv_heads=2,
        ),
    )
)
ids = torch.arange(16).reshape(2, 8)
wrapper = AutoregressiveWrapper(model)
train(wrapper, lambda: wrapper(ids))
show("greedy", wrapper.generate(ids[:, :3], 5, temperature=0.0))
alibi = fill(
    TransformerWrapper(
        num_tokens=64,
        max_seq_len=32,
        use_abs_pos_emb=False,
        attn_layers=Decoder(dim=32, depth=1, heads=4, attn_dim_head=8, alibi_pos_bias=True, attn_qk_norm=True),
    )
)
show("alibi", alibi(ids)[0, :, ::16])
images = fill(
    ViTransformerWrapper(
        image_size=16, patch_size=8, num_classes=5, attn_layers=Encoder(dim=32, depth=1, heads=4, attn_dim_head=8)
    )
)
show("image", images(waves(2, 3, 16, 16)))
