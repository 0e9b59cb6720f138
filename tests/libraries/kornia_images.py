"""kornia: filters, colours, warps, augmentation with given parameters, features and losses, with gradients."""

import kornia
import torch
from common import show, waves

images = (waves(2, 3, 16, 16) + 1) / 2
other = images.flip(-1) * 0.9 + 0.05
matrix = torch.tensor([[0.9, 0.2, 1.0], [-0.15, 1.1, -0.5]]).expand(2, 2, 3)
homography = torch.tensor([[0.9, 0.2, 1.0], [-0.15, 1.1, -0.5], [0.002, 0.001, 1.0]]).expand(2, 3, 3)
corners = torch.tensor([[[1.0, 2.0], [14.0, 1.0], [13.0, 14.0], [2.0, 13.0]]]).expand(2, 4, 2)
FUNCTIONS = {
    "gaussian": lambda x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
    "sobel": kornia.filters.sobel,
    "canny": lambda x: kornia.filters.canny(x)[0],
    "median": lambda x: kornia.filters.median_blur(x, (3, 3)),
    "bilateral": lambda x: kornia.filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
    "unsharp": lambda x: kornia.filters.unsharp_mask(x, (3, 3), (1.5, 1.5)),
    "hsv": kornia.color.rgb_to_hsv,
    "lab": kornia.color.rgb_to_lab,
    "ycbcr": kornia.color.rgb_to_ycbcr,
    "affine": lambda x: kornia.geometry.warp_affine(x, matrix, (12, 20)),
    "perspective": lambda x: kornia.geometry.warp_perspective(x, homography, (16, 16), padding_mode="border"),
    "crop": lambda x: kornia.geometry.crop_and_resize(x, corners, (8, 8)),
    "rotate": lambda x: kornia.geometry.rotate(x, torch.tensor([30.0, -70.0])),
    "pyramid": lambda x: kornia.geometry.build_pyramid(x, 3)[-1],
    "equalize": kornia.enhance.equalize_clahe,
    "jitter": lambda x: kornia.enhance.adjust_hue(kornia.enhance.adjust_contrast(x, 1.3), 0.2),
    "erode": lambda x: kornia.morphology.erosion(x, torch.ones(3, 3)),
    "harris": kornia.feature.harris_response,
    "ssim": lambda x: kornia.losses.ssim_loss(x, other, 5),
    "variation": kornia.losses.total_variation,
    "psnr": lambda x: kornia.losses.psnr_loss(x, other, 1.0),
}
for name, function in FUNCTIONS.items():
    x = images.clone().requires_grad_()
    out = function(x)
    show(name, out.shape, out.mean(), out.std() if out.numel() > 2 else out)
    if out.requires_grad:
        out.square().mean().backward()
        show(f"{name}_gradient", x.grad.norm())

augment = kornia.augmentation.AugmentationSequential(
    kornia.augmentation.RandomHorizontalFlip(p=1.0),
    kornia.augmentation.RandomRotation((30.0, 30.0), p=1.0),
    kornia.augmentation.Normalize(torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])),
    data_keys=["input", "mask"],
)
flipped, mask = augment(images, (images[:, :1] > 0.5).float())
show("augmented", flipped.mean(), flipped.std(), mask.mean())
labels = torch.arange(2 * 16 * 16).reshape(2, 16, 16) % 3
show("dice", kornia.losses.dice_loss(images, labels), kornia.losses.focal_loss(images, labels, 0.5, reduction="mean"))
source = waves(1, 8, 2)
target = kornia.geometry.transform_points(homography[:1], source)
show("homography", kornia.geometry.find_homography_dlt(source, target))
show("rotation", kornia.geometry.axis_angle_to_rotation_matrix(waves(3, 3)))
