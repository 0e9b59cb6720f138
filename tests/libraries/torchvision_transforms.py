"""torchvision: transforms of images as tensors, both versions, with boxes and masks, and resizing with gradients."""

import torch
from common import show, waves
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, functional, v2
from torchvision.transforms.v2 import functional as functional_v2

IMAGE = (waves(3, 24, 30) * 0.4 + 0.5).clamp(0, 1)
BYTES = (IMAGE * 255).round().to(torch.uint8)

SHARED = {
    "resize": lambda f, x: f.resize(x, [12, 17], antialias=True),
    "resize_bicubic": lambda f, x: f.resize(x, [31, 20], InterpolationMode.BICUBIC, antialias=True),
    "resize_nearest": lambda f, x: f.resize(x, [11, 13], InterpolationMode.NEAREST),
    "center_crop": lambda f, x: f.center_crop(x, [40, 10]),
    "resized_crop": lambda f, x: f.resized_crop(x, 3, 4, 15, 20, [10, 12], antialias=True),
    "pad_reflect": lambda f, x: f.pad(x, [3, 2, 1, 4], padding_mode="reflect"),
    "flips": lambda f, x: f.vflip(f.hflip(x)),
    "rotate": lambda f, x: f.rotate(x, 30.0, InterpolationMode.BILINEAR, expand=True),
    "affine": lambda f, x: f.affine(x, 15.0, [3, 2], 0.9, [5.0, 2.0], InterpolationMode.BILINEAR),
    "perspective": lambda f, x: f.perspective(
        x, [[0, 0], [29, 0], [29, 23], [0, 23]], [[2, 1], [27, 3], [25, 20], [1, 22]], InterpolationMode.BILINEAR
    ),
    "brightness": lambda f, x: f.adjust_brightness(x, 1.3),
    "contrast": lambda f, x: f.adjust_contrast(x, 0.6),
    "saturation": lambda f, x: f.adjust_saturation(x, 1.7),
    "hue": lambda f, x: f.adjust_hue(x, 0.2),
    "gamma": lambda f, x: f.adjust_gamma(x, 0.7, 1.1),
    "sharpness": lambda f, x: f.adjust_sharpness(x, 2.0),
    "autocontrast": lambda f, x: f.autocontrast(x),
    "equalize": lambda f, x: f.equalize(x) if x.dtype is torch.uint8 else x,
    "posterize": lambda f, x: f.posterize(x, 3) if x.dtype is torch.uint8 else x,
    "solarize": lambda f, x: f.solarize(x, 128 if x.dtype is torch.uint8 else 0.5),
    "gaussian_blur": lambda f, x: f.gaussian_blur(x, [5, 3], [1.2, 0.8]),
    "grayscale": lambda f, x: f.rgb_to_grayscale(x, 3),
    "normalize": lambda f, x: f.normalize(x, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]) if x.is_floating_point() else x,
}


def digest(x):
    """Few numbers that depend on all elements. Bytes may be rounded to their neighbours."""
    x = x.double() / (255 if x.dtype is torch.uint8 else 1)
    return x.mean(), x.std(), (x * waves(*x.shape).double()).mean()


for name, change in SHARED.items():
    for version, module in (("v1", functional), ("v2", functional_v2)):
        for kind, image in (("float", IMAGE), ("uint8", BYTES)):
            show(f"{name}_{version}_{kind}", *digest(change(module, image)))

for mode in ("bilinear", "bicubic"):
    for size in ([7, 11], [40, 33]):
        x = IMAGE[None].clone().requires_grad_()
        y = torch.nn.functional.interpolate(x, size, mode=mode, antialias=True)
        (y * waves(*y.shape)).sum().backward()
        show(f"interpolate_{mode}_{size[0]}", *digest(y), *digest(x.grad))

pipeline = v2.Compose(
    [
        v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
        v2.Resize(20, antialias=True),
        v2.CenterCrop((18, 16)),
        v2.RandomHorizontalFlip(p=1.0),
        v2.ClampBoundingBoxes(),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    ]
)
boxes = tv_tensors.BoundingBoxes([[2, 3, 14, 20], [10, 5, 29, 22]], format="XYXY", canvas_size=(24, 30))
mask = tv_tensors.Mask(BYTES[:1] > 128)
image, boxes, mask = pipeline(tv_tensors.Image(BYTES), boxes, mask)
show("pipeline", *digest(image), boxes, *digest(mask))
show("boxes", functional_v2.convert_bounding_box_format(boxes, new_format=tv_tensors.BoundingBoxFormat.CXCYWH))
mixed = v2.MixUp(num_classes=4, alpha=1e8)(torch.stack([IMAGE, IMAGE.flip(1)]), torch.tensor([1, 3]))
show("mixup", *[digest(x)[0] for x in mixed])
show("to_dtype", functional_v2.to_dtype(BYTES, torch.float32, scale=True).mean(), functional.to_pil_image(BYTES).size)
