"""Pictures, sounds, texts, meshes."""

from __future__ import annotations

import io
import wave

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.util.tensor_util import make_ndarray

import weft
from tests.utils.tensorboard.reading import refused
from weft.errors import PreconditionError, ValueRangeError

matplotlib.use("Agg")


def shown(read, tag):
    (event,) = read.Images(tag)
    pixels = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
    assert pixels.shape[:2] == (event.height, event.width)
    return pixels


def test_images(written):
    color = np.random.default_rng(0).integers(0, 256, (3, 4, 5)).astype(np.uint8)
    grey = weft.tensor([[0.0, 0.5], [1.0, 2.0], [-1.0, 0.25]])

    def use(writer):
        writer.add_image("bytes", color, 1)
        writer.add_image("tensor", weft.from_numpy(color).float() / 255)
        writer.add_image("hwc", weft.from_numpy(color).permute(1, 2, 0), dataformats="HWC")
        writer.add_image("grey", grey, dataformats="hw")
        writer.add_image("turned", grey, dataformats="WH")
        writer.add_image("alpha", weft.full((4, 2, 3), 0.5))
        writer.add_images("grid", weft.from_numpy(np.stack([color] * 9)))
        writer.add_images("greys", grey.expand(2, 1, 3, 2))

    read = written(use)
    for tag in ("bytes", "hwc"):
        assert (shown(read, tag) == color.transpose(1, 2, 0)).all()
    assert np.abs(shown(read, "tensor").astype(int) - color.transpose(1, 2, 0)).max() <= 1
    assert shown(read, "grey")[:, :, 1].tolist() == [[0, 127], [255, 255], [0, 63]]
    assert shown(read, "turned").shape == (2, 3, 3)
    assert shown(read, "alpha").shape == (2, 3, 4)
    grid = shown(read, "grid")
    assert grid.shape == (8, 40, 3)
    assert (grid[4:, :5] == color.transpose(1, 2, 0)).all()
    assert not grid[4:, 5:].any()
    assert shown(read, "greys").shape == (3, 4, 3)


@pytest.mark.parametrize(
    ("shape", "dataformats", "error", "text"),
    [
        (
            (3, 2),
            "CHW",
            PreconditionError,
            r"^size of input tensor and input format are different\. tensor shape: "
            r"\(3, 2\), input_format: CHW$",
        ),
        (
            (3, 2, 2),
            "CHH",
            PreconditionError,
            r"^You can not use the same dimension shorthand twice\. input_format: "
            r"CHH$",
        ),
        ((3, 2, 2), "NHW", ValueRangeError, r"^dataformats has the letters NCHW, CHW or HW in any order, got 'NHW'$"),
        (
            (1, 2, 4, 4),
            "NCHW",
            PreconditionError,
            r"^expected images of shape \(number, 1 or 3 channels, height, "
            r"width\), got \(1, 2, 4, 4\)$",
        ),
    ],
)
def test_what_is_no_image(shape, dataformats, error, text, tmp_path):
    refused(tmp_path, "add_image", "i", weft.zeros(shape), dataformats=dataformats, error=error, match=text)


def test_boxes(written):
    def use(writer):
        box = weft.tensor([[10, 10, 30, 30]])
        writer.add_image_with_boxes("one", weft.zeros(3, 40, 50), box)
        writer.add_image_with_boxes("named", weft.zeros(3, 40, 50), box, labels="cat")
        writer.add_image_with_boxes("unclear", weft.zeros(3, 40, 50), box, labels=["cat", "dog"])
        writer.add_image_with_boxes("small", weft.zeros(3, 40, 50), box, rescale=0.5)

    read = written(use)
    one = shown(read, "one")
    assert one[10, 20].tolist() == [255, 0, 0]
    assert not one[20, 20].any()
    assert shown(read, "named")[20:30, 12:28].any()
    assert (shown(read, "unclear") == one).all()
    (small,) = read.Images("small")
    assert (small.height, small.width) == (40, 50)
    assert Image.open(io.BytesIO(small.encoded_image_string)).size == (25, 20)


def test_figures(written):
    def use(writer):
        figures = [pyplot.figure(figsize=(1, 0.5), dpi=40, facecolor="red") for _ in range(3)]
        writer.add_figure("kept", figures[0], close=False)
        assert len(pyplot.get_fignums()) == 3
        writer.add_figure("one", figures[0])
        writer.add_figure("two", figures[1:])
        assert pyplot.get_fignums() == []

    read = written(use)
    assert (shown(read, "one") == shown(read, "kept")).all()
    assert shown(read, "one").shape == (20, 40, 3)
    assert shown(read, "one")[0, 0].tolist() == [255, 0, 0]
    assert shown(read, "two").shape == (20, 80, 3)


def test_videos(written):
    clip = weft.arange(3).reshape(1, 3, 1, 1, 1) * weft.ones(3, 3, 3, 4, 6) / 2

    def use(writer):
        writer.add_video("v", clip, 2, fps=10)
        writer.add_video("grey", (clip[:1, :, :1] * 255).to(weft.uint8))

    read = written(use)
    for tag, size, milliseconds in (("v", (24, 4), 100), ("grey", (6, 4), 250)):
        (event,) = read.Images(tag)
        movie = Image.open(io.BytesIO(event.encoded_image_string))
        assert (movie.format, movie.n_frames, movie.size, movie.info["duration"]) == ("GIF", 3, size, milliseconds)
        movie.seek(2)
        assert movie.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_what_is_no_video(tmp_path):
    text = r"^expected videos of shape \(number, time, channel, height, width\), got \(3, 4, 4\)$"
    refused(tmp_path, "add_video", "v", weft.zeros(3, 4, 4), error=ValueRangeError, match=text)


def test_sounds(written):
    tone = weft.tensor([[0.0, 1.0, -0.5]])

    def use(writer):
        writer.add_audio("s", tone, 1, sample_rate=8000)
        with pytest.warns(UserWarning, match=r"^audio amplitude out of range, auto clipped\.$"):
            writer.add_audio("loud", tone * 3)

    read = written(use)
    (event,) = read.Audio("s")
    assert (event.sample_rate, event.length_frames, event.content_type) == (8000.0, 3, "audio/wav")
    with wave.open(io.BytesIO(event.encoded_audio_string)) as sound:
        assert np.frombuffer(sound.readframes(9), "<i2").tolist() == [0, 32767, -16383]
    with wave.open(io.BytesIO(read.Audio("loud")[0].encoded_audio_string)) as sound:
        assert np.frombuffer(sound.readframes(9), "<i2").tolist() == [0, 32767, -32767]


def test_what_is_no_sound(tmp_path):
    text = r"^input tensor should be 1 dimensional\.$"
    refused(tmp_path, "add_audio", "s", weft.zeros(2, 3), error=PreconditionError, match=text)


def test_texts_and_layouts(written):
    def use(writer):
        writer.add_text("note", "**ü**", 3)
        writer.add_custom_scalars({"a": {"x": ["Multiline", ["p", "q"]], "y": ["Margin", ["v", "l", "u"]]}})

    read = written(use)
    (note,) = read.Tensors("note/text_summary")
    assert (note.step, make_ndarray(note.tensor_proto).tolist()) == (3, ["**ü**".encode()])
    (config,) = read.Tensors("custom_scalars__config__")
    (category,) = Layout.FromString(config.tensor_proto.string_val[0]).category
    lines, margin = category.chart
    assert (category.title, lines.title, list(lines.multiline.tag)) == ("a", "x", ["p", "q"])
    (series,) = margin.margin.series
    assert (series.value, series.lower, series.upper) == ("v", "l", "u")


@pytest.mark.parametrize("kind", ["multiline", "margin"])
def test_one_chart(kind, written):
    read = written(lambda w: getattr(w, f"add_custom_scalars_{kind}chart")(["a", "b", "c"], "group", "name"))
    config = Layout.FromString(read.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0])
    assert (config.category[0].title, config.category[0].chart[0].title) == ("group", "name")
    assert config.category[0].chart[0].WhichOneof("content") == kind


def test_margins_have_three_tags(tmp_path):
    layout = {"a": {"y": ["Margin", ["v", "l"]]}}
    refused(tmp_path, "add_custom_scalars", layout, error=PreconditionError, match=r"^len\(tags\) != 3$")
    method = "add_custom_scalars_marginchart"
    refused(tmp_path, method, ["v"], error=PreconditionError, match=r"^Expected 3 tags, got 1\.$")


def test_meshes(written, tmp_path):
    points = weft.arange(12.0).reshape(1, 4, 3)
    faces = weft.tensor([[[0, 1, 2]]])
    config = {"camera": {"cls": "PerspectiveCamera"}}
    read = written(lambda w: w.add_mesh("m", points, colors=points.to(weft.uint8), faces=faces, config_dict=config))
    found = {tag: make_ndarray(read.Tensors(tag)[0].tensor_proto).tolist() for tag in read.Tags()["tensors"]}
    assert found == {"m_VERTEX": points.tolist(), "m_COLOR": points.tolist(), "m_FACE": faces.tolist()}
    data = MeshPluginData.FromString(read.SummaryMetadata("m_FACE").plugin_data.content)
    assert (data.content_type, list(data.shape)) == (MeshPluginData.FACE, [1, 1, 3])
    assert data.json_config == '{"camera": {"cls": "PerspectiveCamera"}}'
    text = r"^m: a mesh has parts of shape \(batch, number, 3\), got \(4, 3\)$"
    refused(tmp_path, "add_mesh", "m", points[0], error=ValueRangeError, match=text)
