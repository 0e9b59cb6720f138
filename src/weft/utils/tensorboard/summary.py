"""The summaries in event files: values shown under a tag at a step."""

from __future__ import annotations

import io
import json
import warnings
import wave
from collections.abc import Mapping, Sequence
from functools import cache
from typing import SupportsFloat

import numpy as np

from weft._base.types import Arg, Json
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ValueRangeError
from weft.utils.tensorboard._arrays import frames, to_bytes, to_hwc, to_numpy
from weft.utils.tensorboard._hparams import hparams as hparams
from weft.utils.tensorboard._protos import (
    HistogramProto,
    Image,
    ImageDraw,
    ImageFont,
    MeshPluginData,
    Message,
    PrCurvePluginData,
    Summary,
    SummaryMetadata,
    TensorProto,
    TensorShapeProto,
    TextPluginData,
    layouts,
    mesh_metadata,
)

_MOST_THRESHOLDS = 127  # of a curve; TensorBoard's plugin accepts no more
_LEAST_COUNT = 1e-7


def _one(tag: str, **content: Arg) -> Message:
    return Summary(value=[Summary.Value(tag=tag, **content)])


def _of_plugin(name: str, content: bytes = b"") -> Message:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name, content=content))


# --- numbers ----------------------------------------------------------------------------------------------------


def scalar(
    name: str, tensor: Tensor, collections: object = None, new_style: bool = False, double_precision: bool = False
) -> Message:
    """One number. `new_style` writes it as a tensor; then `double_precision` keeps a `float64`.

    `collections` is accepted for compatibility.
    """
    del collections
    array = to_numpy(tensor).squeeze()
    if array.ndim != 0:
        raise PreconditionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and {array.ndim} "
            "dimensions."
        )
    number = float(array)
    if not new_style:
        return _one(name, simple_value=number)
    written = _tensor(np.array(number, np.float64 if double_precision else np.float32))
    return _one(name, tensor=written, metadata=_of_plugin("scalars"))


_FIELDS = {
    "bool": ("DT_BOOL", "bool_val"),
    "uint8": ("DT_UINT8", "int_val"),
    "int8": ("DT_INT8", "int_val"),
    "int16": ("DT_INT16", "int_val"),
    "int32": ("DT_INT32", "int_val"),
    "int64": ("DT_INT64", "int64_val"),
    "float16": ("DT_HALF", "half_val"),
    "bfloat16": ("DT_BFLOAT16", "half_val"),
    "float32": ("DT_FLOAT", "float_val"),
    "float64": ("DT_DOUBLE", "double_val"),
    "complex64": ("DT_COMPLEX64", "scomplex_val"),
    "complex128": ("DT_COMPLEX128", "dcomplex_val"),
}


def _tensor(array: np.ndarray) -> Message:
    """An array, in the field for its type."""
    kind, field = _FIELDS[array.dtype.name]
    flat = array.reshape(-1)
    if field == "half_val":
        flat = flat.view(np.uint16)
    elif array.dtype.kind == "c":
        flat = np.stack([np.real(flat), np.imag(flat)], axis=1).reshape(-1)
    return TensorProto(dtype=kind, tensor_shape=_shape(array.shape), **{field: flat.tolist()})


def _shape(sizes: Sequence[int]) -> Message:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def tensor_proto(tag: str, tensor: Tensor) -> Message:
    """A whole tensor."""
    array = tensor._host() if isinstance(tensor, Tensor) else to_numpy(tensor)
    if array.nbytes >= 1 << 31:
        raise ValueRangeError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    if array.dtype.name not in _FIELDS:
        raise ValueRangeError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    return _one(tag, tensor=_tensor(array), metadata=_of_plugin("tensor"))


# --- histograms -------------------------------------------------------------------------------------------------


@cache
def default_bins() -> list[float]:
    """TensorFlow's bucket limits: from -1e20 to 1e20, each 10 % larger than the one before."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return [*(-x for x in reversed(limits)), 0, *limits]


def histogram_raw(
    name: str,
    min: SupportsFloat,
    max: SupportsFloat,
    num: SupportsFloat,
    sum: SupportsFloat,
    sum_squares: SupportsFloat,
    bucket_limits: Arg,
    bucket_counts: Arg,
) -> Message:
    """A histogram that is already counted; `bucket_limits` are the upper ends of the buckets."""
    return _one(
        name,
        histo=HistogramProto(
            min=min,
            max=max,
            num=num,
            sum=sum,
            sum_squares=sum_squares,
            bucket_limit=bucket_limits,
            bucket=bucket_counts,
        ),
    )


def histogram(name: str, values: Arg, bins: str | Arg, max_bins: int | None = None) -> Message:
    """A histogram of all elements; `bins` is as for `numpy.histogram`."""
    return _one(name, histo=make_histogram(to_numpy(values).astype(float), bins, max_bins))


def make_histogram(values: np.ndarray, bins: str | Arg, max_bins: int | None = None) -> Message:
    """Count the elements; if there are more than `max_bins` bins, neighbouring ones are merged."""
    if values.size == 0:
        raise ValueRangeError("The input has no element.")
    values = values.reshape(-1)
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = _joined(counts, limits, len(counts) // max_bins)
    (filled,) = np.nonzero(counts)
    if filled.size == 0:
        raise ValueRangeError("The histogram is empty: no element lies in a bin.")
    first, last = filled[0], filled[-1]
    # Only upper limits are stored, so an empty bucket in front gives the start of the first one.
    return HistogramProto(
        min=values.min(),
        max=values.max(),
        num=len(values),
        sum=values.sum(),
        sum_squares=values.dot(values),
        bucket_limit=limits[first : last + 2].tolist(),
        bucket=[0, *counts[first : last + 1].tolist()],
    )


def _joined(counts: np.ndarray, limits: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    starts = np.arange(0, len(counts), step)
    return np.add.reduceat(counts, starts), np.append(limits[:-1][starts], limits[-1])


# --- images, videos, sounds -------------------------------------------------------------------------------------


def image(tag: str, tensor: Tensor, rescale: float = 1, dataformats: str = "NCHW") -> Message:
    """An image, or a grid of them: `uint8`, or numbers from 0 to 1."""
    return _one(tag, image=make_image(to_bytes(to_hwc(to_numpy(tensor), dataformats)), rescale))


def image_boxes(
    tag: str,
    tensor_image: Arg,
    tensor_boxes: Arg,
    rescale: float = 1,
    dataformats: str = "CHW",
    labels: Sequence[str] | None = None,
) -> Message:
    """An image with red boxes (left, top, right, bottom) and their labels."""
    pixels = to_bytes(to_hwc(to_numpy(tensor_image), dataformats))
    return _one(tag, image=make_image(pixels, rescale, to_numpy(tensor_boxes), labels))


def make_image(
    tensor: np.ndarray, rescale: float = 1, rois: np.ndarray | None = None, labels: Sequence[str] | None = None
) -> Message:
    """A `uint8` image (height, width, channel) as PNG; the stored size is the one before `rescale`."""
    height, width, channels = tensor.shape
    picture = Image.fromarray(tensor)
    if rois is not None:
        _draw_boxes(ImageDraw.Draw(picture), rois, labels)
    picture = picture.resize((int(width * rescale), int(height * rescale)), Image.Resampling.LANCZOS)
    return _encoded(picture, (height, width, channels), format="PNG")


def _encoded(picture: Arg, sizes: tuple[int, int, int], **options: Arg) -> Message:
    height, width, channels = sizes
    with io.BytesIO() as file:
        picture.save(file, **options)
        content = file.getvalue()
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=content)


def _draw_boxes(draw: Arg, boxes: np.ndarray, labels: Sequence[str] | None) -> None:
    font = ImageFont.load_default()
    for at, (left, top, right, bottom) in enumerate(boxes.tolist()):
        corners = [(left, top), (left, bottom), (right, bottom), (right, top), (left, top)]
        draw.line(corners, width=2, fill="Red")
        if labels is not None and labels[at]:
            x0, y0, x1, y1 = font.getbbox(labels[at])
            width, height = x1 - x0, y1 - y0
            margin = np.ceil(0.05 * height)
            draw.rectangle([(left, bottom - height - 2 * margin), (left + width, bottom)], fill="Red")
            draw.text((left + margin, bottom - height - margin), labels[at], fill="black", font=font)


def video(tag: str, tensor: Tensor, fps: float = 4) -> Message:
    """Videos (number, time, channel, height, width) in a grid: `uint8`, or numbers from 0 to 1."""
    pictures = to_bytes(frames(to_numpy(tensor)))
    first, *others = [Image.fromarray(p if p.shape[2] > 1 else p[:, :, 0]) for p in pictures]
    milliseconds = round(1000 / fps)
    sizes = pictures.shape[1:]
    options = {"format": "GIF", "save_all": True, "append_images": others, "duration": milliseconds, "loop": 0}
    return _one(tag, image=_encoded(first, sizes, **options))


def audio(tag: str, tensor: Tensor, sample_rate: int = 44100) -> Message:
    """One channel of sound from -1 to 1, as 16-bit WAV; larger values are clipped, with a warning."""
    array = to_numpy(tensor).squeeze()
    if array.ndim != 1:
        raise PreconditionError("input tensor should be 1 dimensional.")
    if np.abs(array).max(initial=0) > 1:
        warnings.warn("audio amplitude out of range, auto clipped.", stacklevel=3)
    samples = (array.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    with io.BytesIO() as file:
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(sample_rate)
            sound.writeframes(samples.tobytes())
        content = file.getvalue()
    written = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(samples),
        encoded_audio_string=content,
        content_type="audio/wav",
    )
    return _one(tag, audio=written)


# --- texts and charts -------------------------------------------------------------------------------------------


def text(tag: str, text: str) -> Message:
    """A text, which TensorBoard shows as Markdown."""
    written = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=_shape([1]))
    plugin = _of_plugin("text", TextPluginData(version=0).SerializeToString())
    return _one(f"{tag}/text_summary", metadata=plugin, tensor=written)


def custom_scalars(layout: Mapping[str, Mapping[str, Sequence[Arg]]]) -> Message:
    """The charts that combine scalars: {category: {chart: ["Multiline" or "Margin", tags]}}."""
    categories = [
        layouts.Category(title=title, chart=[_chart(name, *described) for name, described in charts.items()])
        for title, charts in layout.items()
    ]
    content = layouts.Layout(category=categories).SerializeToString()
    written = TensorProto(dtype="DT_STRING", string_val=[content], tensor_shape=TensorShapeProto())
    return _one("custom_scalars__config__", tensor=written, metadata=_of_plugin("custom_scalars"))


def _chart(title: str, kind: str, tags: Sequence[str]) -> Message:
    if kind != "Margin":
        return layouts.Chart(title=title, multiline=layouts.MultilineChartContent(tag=tags))
    if len(tags) != 3:
        raise PreconditionError("len(tags) != 3")
    value, lower, upper = tags
    series = layouts.MarginChartContent.Series(value=value, lower=lower, upper=upper)
    return layouts.Chart(title=title, margin=layouts.MarginChartContent(series=[series]))


def pr_curve_raw(
    tag: str,
    tp: Arg,
    fp: Arg,
    tn: Arg,
    fn: Arg,
    precision: Arg,
    recall: Arg,
    num_thresholds: int = 127,
    weights: Arg | None = None,
) -> Message:
    """A precision-recall curve that is already computed. `weights` is accepted for compatibility."""
    del weights
    return _curve(tag, np.stack([to_numpy(x) for x in (tp, fp, tn, fn, precision, recall)]), num_thresholds)


def pr_curve(tag: str, labels: Arg, predictions: Arg, num_thresholds: int = 127, weights: Arg | None = None) -> Message:
    """Precision and recall of predictions from 0 to 1 against boolean labels, for all thresholds."""
    num_thresholds = min(num_thresholds, _MOST_THRESHOLDS)
    return _curve(tag, compute_curve(to_numpy(labels), to_numpy(predictions), num_thresholds, weights), num_thresholds)


def _curve(tag: str, rows: np.ndarray, num_thresholds: int) -> Message:
    content = PrCurvePluginData(version=0, num_thresholds=min(num_thresholds, _MOST_THRESHOLDS))
    plugin = _of_plugin("pr_curves", content.SerializeToString())
    return _one(tag, tensor=_tensor(rows.astype(np.float32)), metadata=plugin)


def compute_curve(
    labels: np.ndarray, predictions: np.ndarray, num_thresholds: int, weights: Arg | None = None
) -> np.ndarray:
    """Rows: true and false positives, true and false negatives, precision, recall; a column for each threshold."""
    weights = 1.0 if weights is None else to_numpy(weights)
    buckets = np.int32(np.floor(predictions * (num_thresholds - 1)))
    positive = labels.astype(np.float64)

    def at_least(counted: np.ndarray) -> np.ndarray:
        counts, _ = np.histogram(buckets, num_thresholds, (0, num_thresholds - 1), weights=counted * weights)
        return counts[::-1].cumsum()[::-1]

    tp, fp = at_least(positive), at_least(1.0 - positive)
    tn, fn = fp[0] - fp, tp[0] - tp
    return np.stack((tp, fp, tn, fn, tp / np.maximum(_LEAST_COUNT, tp + fp), tp / np.maximum(_LEAST_COUNT, tp + fn)))


def mesh(
    tag: str,
    vertices: Arg,
    colors: Arg | None,
    faces: Arg | None,
    config_dict: Mapping[str, Json] | None,
    display_name: str | None = None,
    description: str | None = None,
) -> Message:
    """Points in space (batch, point, 3), their colours, and triangles between them; `config_dict` is for three.js."""
    config = json.dumps(config_dict or {}, sort_keys=True)
    parts = {
        kind: to_numpy(part)
        for kind, part in (
            (MeshPluginData.VERTEX, vertices),
            (MeshPluginData.FACE, faces),
            (MeshPluginData.COLOR, colors),
        )
        if part is not None
    }
    components = mesh_metadata.get_components_bitmask(list(parts))
    message = Summary()
    for kind, array in parts.items():
        if array.ndim != 3 or array.shape[2] != 3:
            raise ValueRangeError(f"{tag}: a mesh has parts of shape (batch, number, 3), got {tuple(array.shape)}")
        plugin = mesh_metadata.create_summary_metadata(
            tag, display_name, kind, components, array.shape, description, json_config=config
        )
        name = mesh_metadata.get_instance_name(tag, kind)
        message.value.add(tag=name, tensor=_tensor(array.astype(np.float32)), metadata=plugin)
    return message
