"""torchvision: its operators with their gradients, and detection models: two steps of training, and boxes found."""

import torch
from common import fill, show, waves
from torchvision import ops
from torchvision.models import detection, mobilenet_v3_small
from torchvision.models.detection._utils import retrieve_out_channels
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.ssdlite import SSDLiteHead, _mobilenet_extractor
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

SIZE, CLASSES = 64, 3
BOXES = torch.tensor([[4.0, 6.0, 40.0, 44.0], [20.0, 10.0, 60.0, 46.0]])


def digest(*arrays):
    """Two numbers for each array."""
    return [number for x in arrays for number in (x.norm(), (x * waves(*x.shape)).sum())]


def operators():
    """Each operator, and the gradients of what it has a derivative by."""
    regions = [torch.tensor([[0.3, 1.2, 7.1, 6.4], [2.0, 2.0, 3.0, 9.5]]), torch.tensor([[-1.0, 0.5, 12.0, 4.0]])]
    pools = {
        "roi_align": lambda x: ops.roi_align(x, regions, (3, 2), 0.8, 2),
        "roi_align_adaptive": lambda x: ops.roi_align(x, regions, 2, 0.8, aligned=True),
        "roi_pool": lambda x: ops.roi_pool(x, regions, 2, 0.8),
        "ps_roi_align": lambda x: ops.ps_roi_align(x, regions, 2, 0.8),
    }
    for name, pool in pools.items():
        x = waves(2, 8, 9, 10).requires_grad_()
        out = pool(x)
        (out * waves(*out.shape)).sum().backward()
        show(name, *digest(out, x.grad))
    show("ps_roi_pool", ops.ps_roi_pool(waves(2, 8, 9, 10), regions, 2, 0.8))
    layer = fill(ops.DeformConv2d(8, 4, 3, stride=(2, 1), padding=1, groups=2))
    inputs = [waves(2, 8, 9, 10), waves(2, 36, 5, 10) * 2, waves(2, 18, 5, 10).sigmoid()]
    out = layer(*[x.requires_grad_() for x in inputs])
    (out * waves(*out.shape)).sum().backward()
    show("deform_conv2d", *digest(out, *[x.grad for x in (*inputs, *layer.parameters())]))
    corners = waves(60, 2) * 20 + 20
    boxes, scores = torch.cat([corners, corners + 8 + 3 * waves(2, 60).t()], 1), waves(60)
    show("nms", ops.nms(boxes, scores, 0.3), ops.batched_nms(boxes, scores, torch.arange(60) % 3, 0.3))


def backbone(last=None):
    return resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, trainable_layers=5, returned_layers=[2, 3, 4], extra_blocks=last
    )


def anchors(ratios):
    return AnchorGenerator(sizes=((16,), (32,), (64,), (128,)), aspect_ratios=(ratios,) * 4)


def ssdlite():
    net = mobilenet_v3_small(weights=None, norm_layer=torch.nn.BatchNorm2d, reduced_tail=True)
    features = _mobilenet_extractor(net, 6, torch.nn.BatchNorm2d)
    boxes = DefaultBoxGenerator([[2, 3] for _ in range(6)], min_ratio=0.2, max_ratio=0.95)
    channels = retrieve_out_channels(features, (SIZE, SIZE))
    head = SSDLiteHead(channels, boxes.num_anchors_per_location(), CLASSES, torch.nn.BatchNorm2d)
    net = detection.ssd.SSD(features, boxes, (SIZE, SIZE), CLASSES, head=head, detections_per_img=10)
    return net.double()  # normalizes over two numbers where its maps have one pixel, so that float32 would not agree


RESIZED = {"min_size": SIZE, "max_size": SIZE}
# All candidates are taken, since those that are drawn differ.
REGIONS = {
    **RESIZED,
    "rpn_batch_size_per_image": 100000,
    "box_batch_size_per_image": 100000,
    "rpn_pre_nms_top_n_train": 50,
    "box_detections_per_img": 10,
}


def of_regions(kind, **options):
    return kind(backbone(), rpn_anchor_generator=anchors((0.5, 1.0, 2.0)), num_classes=CLASSES, **options, **REGIONS)


def of_levels(kind, ratios):
    last = LastLevelP6P7(256, 256)
    generator = AnchorGenerator(sizes=((8,), (16,), (32,), (64,), (128,)), aspect_ratios=(ratios,) * 5)
    return kind(backbone(last), CLASSES, anchor_generator=generator, detections_per_img=10, **RESIZED)


MODELS = {
    "faster_rcnn": lambda: of_regions(detection.FasterRCNN),
    "mask_rcnn": lambda: of_regions(detection.MaskRCNN),
    "keypoint_rcnn": lambda: of_regions(detection.KeypointRCNN, num_keypoints=4),
    "retinanet": lambda: of_levels(detection.RetinaNet, (0.5, 1.0, 2.0)),
    "fcos": lambda: of_levels(detection.FCOS, (1.0,)),
    "ssdlite": ssdlite,
}


def target(dtype):
    masks = torch.zeros(2, SIZE, SIZE, dtype=torch.uint8)
    masks[0, 10:40, 6:36] = masks[1, 12:44, 25:55] = 1
    points = torch.cat([BOXES.reshape(2, 2, 2), BOXES.reshape(2, 2, 2).flip(2) * 0.5 + 10], 1)
    keypoints = torch.cat([points, torch.ones(2, 4, 1)], 2)
    return {"boxes": BOXES.to(dtype), "labels": torch.tensor([1, 2]), "masks": masks, "keypoints": keypoints}


def models():
    for name, build in MODELS.items():
        model = fill(build())
        dtype = next(model.parameters()).dtype
        images = [waves(3, SIZE, SIZE).to(dtype), waves(3, SIZE, SIZE).flip(2).to(dtype) * 0.7]
        opt = torch.optim.SGD(model.parameters(), lr=1e-4)
        for step in range(2):
            losses = model(images, [target(dtype) for _ in images])
            opt.zero_grad()
            sum(losses.values()).backward()
            opt.step()
            show(f"{name}_{step}", *losses.values())
        found = model.eval()(images)
        show(f"{name}_found", *[len(entry["boxes"]) for entry in found], *[entry["scores"].sum() for entry in found])


operators()
models()
