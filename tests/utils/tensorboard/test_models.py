"""Graphs, embeddings, hyperparameters."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

import weft
from tests.utils.tensorboard.reading import refused
from weft import nn
from weft.errors import ArgumentError, PreconditionError, ValueRangeError
from weft.utils.tensorboard import SummaryWriter
from weft.utils.tensorboard.summary import hparams


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.drop = nn.Dropout()
        self.last = None

    def forward(self, x, scale):
        self.last = self.drop(self.body(x)) * scale
        return {"total": self.last + self.body(x), "parts": [self.last.sum()]}


def test_graphs(tmp_path, compilations, capsys):
    net = Net()
    net.drop.eval()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, (weft.ones(2, 3), 2.0), verbose=True)
    assert compilations() == []
    assert "Net/Sequential[body]/Linear[0]/linear" in capsys.readouterr().out
    assert (net.training, net.drop.training, net.body[0]._forward_hooks) == (True, False, {})
    graph = EventAccumulator(str(tmp_path)).Reload().Graph()
    layer, relu = "Net/Sequential[body]/Linear[0]", "Net/Sequential[body]/ReLU[1]"
    assert {node.name: (node.op, list(node.input)) for node in graph.node} == {
        "input/input.1": ("IO Node", []),
        f"{layer}/weight": ("Parameter", []),
        f"{layer}/bias": ("Parameter", []),
        f"{layer}/linear": ("linear", ["input/input.1", f"{layer}/weight", f"{layer}/bias"]),
        f"{layer}/linear_1": ("linear", ["input/input.1", f"{layer}/weight", f"{layer}/bias"]),
        f"{relu}/relu": ("relu", [f"{layer}/linear"]),
        f"{relu}/relu_1": ("relu", [f"{layer}/linear_1"]),
        "Net/mul": ("mul", [f"{relu}/relu"]),
        "Net/add": ("add", ["Net/mul", f"{relu}/relu_1"]),
        "output/output.1": ("IO Node", ["Net/add"]),
        "Net/sum": ("sum", ["Net/mul"]),
        "output/output.2": ("IO Node", ["Net/sum"]),
    }
    sizes = {n.name: [d.size for d in n.attr["_output_shapes"].list.shape[0].dim] for n in graph.node}
    assert (sizes[f"{layer}/linear"], sizes["output/output.2"]) == ([2, 4], [])
    assert net.last.shape == (2, 4)
    assert net.last.tolist() == (net.body(weft.ones(2, 3)) * 2).tolist()


def test_graphs_of_models_that_read_values(tmp_path):
    class Reading(nn.Module):
        def forward(self, x):
            y = x * 2
            return y + 1 if y.sum().item() > 0 else y

    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(Reading(), weft.ones(2))
    graph = EventAccumulator(str(tmp_path)).Reload().Graph()
    assert [(n.name, n.op) for n in graph.node] == [
        ("Reading/constant", "Constant"),
        ("Reading/add", "add"),
        ("output/output.1", "IO Node"),
    ]


def test_graphs_of_models_that_write(tmp_path):
    class Writing(nn.Module):
        def forward(self, x):
            return x.add_(1).relu()

    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(Writing(), [weft.ones(2)])
    graph = EventAccumulator(str(tmp_path)).Reload().Graph()
    assert {n.name: list(n.input) for n in graph.node} == {
        "input/input.1": [],
        "Writing/add": ["input/input.1"],
        "Writing/relu": ["Writing/add"],
        "output/output.1": ["Writing/relu"],
    }


def test_graphs_of_models_that_fail(tmp_path):
    net = nn.Sequential(nn.Linear(3, 2))
    text = r"^add_graph\(\): expected a tensor or a tuple of tensors for the model, got None$"
    refused(tmp_path, "add_graph", net, error=ArgumentError, match=text)
    text = r"^add_graph\(\): expected a module, got method$"
    refused(tmp_path, "add_graph", net.forward, weft.ones(2, 3), error=ArgumentError, match=text)
    refused(tmp_path, "add_graph", net, weft.ones(2, 2), error=RuntimeError, match=r"shapes cannot be multiplied")
    assert (net.training, net[0]._forward_pre_hooks) == (True, {})


def test_embeddings(tmp_path):
    points, images = weft.arange(6).reshape(3, 2), weft.ones(3, 3, 4, 4)
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(points, ["a", "b", "c"], images, global_step=2, tag="x/y")
        writer.add_embedding(points.float(), [[1, 2], [3, 4], [5, 6]], metadata_header=["m", "n"])
        with pytest.warns(UserWarning, match=r"^Embedding dir exists, did you set global_step for add_embedding\(\)\?"):
            writer.add_embedding(points)
    first, second = tmp_path / "00002" / "x%2fy", tmp_path / "00000" / "default"
    assert (first / "tensors.tsv").read_text() == "0\t1\n2\t3\n4\t5\n"
    assert (first / "metadata.tsv").read_text() == "a\nb\nc\n"
    sprite = np.asarray(Image.open(first / "sprite.png"))
    assert sprite.shape == (8, 8, 3)
    assert sprite[:, :, 0].sum() == 255 * 3 * 16
    assert (second / "tensors.tsv").read_text() == "0\t1\n2\t3\n4\t5\n"
    assert (second / "metadata.tsv").read_text() == "m\tn\n1\t2\n3\t4\n5\t6\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.startswith(
        'embeddings {\n  tensor_name: "x/y:00002"\n  metadata_path: "00002/x%2fy/metadata.tsv"\n  sprite {\n'
        '    image_path: "00002/x%2fy/sprite.png"\n    single_image_dim: 4\n    single_image_dim: 4\n  }\n'
        '  tensor_path: "00002/x%2fy/tensors.tsv"\n}\n'
    )
    assert config.count("embeddings {") == 3


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((weft.ones(3),), r"^mat should be 2D, where mat\.size\(0\) is the number of data points$"),
        ((weft.ones(3, 2), ["a"]), r"^#labels should equal with #data points$"),
        ((weft.ones(3, 2), None, weft.ones(2, 3, 4, 4)), r"^#images should equal with #data points$"),
        ((weft.ones(1, 2), [[1, 2]], None, 0, "t", ["m"]), r"^len of header must be equal to the number of columns"),
    ],
)
def test_what_does_not_embed(args, text, tmp_path):
    refused(tmp_path, "add_embedding", *args, error=PreconditionError, match=text)


def test_a_file_where_the_embedding_goes(tmp_path):
    (tmp_path / "00000").mkdir()
    (tmp_path / "00000" / "default").touch()
    text = rf"^Path: `{tmp_path}/00000/default` exists, but is a file\. Cannot proceed\.$"
    with SummaryWriter(tmp_path) as writer, pytest.raises(NotADirectoryError, match=text):
        writer.add_embedding(weft.ones(1, 1))


def test_hyperparameters(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        given = {"lr": 0.1, "size": weft.tensor(8), "name": "x", "no": None}
        writer.add_hparams(given, {"acc": 0.5}, {"name": ["x", "y"], "lr": [0.1]}, run_name="run", global_step=3)
        writer.add_hparams({}, {})
    read = EventAccumulator(str(tmp_path / "run")).Reload()
    assert [(e.step, e.value) for e in read.Scalars("acc")] == [(3, 0.5)]
    experiment, start, end = (
        plugin_data_pb2.HParamsPluginData.FromString(read.SummaryMetadata(f"_hparams_/{tag}").plugin_data.content)
        for tag in ("experiment", "session_start_info", "session_end_info")
    )
    infos = {info.name: info for info in experiment.experiment.hparam_infos}
    assert {name: info.type for name, info in infos.items()} == {"lr": 3, "size": 3, "name": 1}
    assert [value.string_value for value in infos["name"].domain_discrete.values] == ["x", "y"]
    assert not infos["size"].HasField("domain_discrete")
    assert [info.name.tag for info in experiment.experiment.metric_infos] == ["acc"]
    values = start.session_start_info.hparams
    assert (values["lr"].number_value, values["size"].number_value, values["name"].string_value) == (0.1, 8, "x")
    assert end.session_end_info.status == 1
    assert len([entry for entry in tmp_path.iterdir() if entry.is_dir()]) == 2


def test_what_are_no_hyperparameters(tmp_path):
    def fails(error, match, *args):
        refused(tmp_path, "add_hparams", *args, error=error, match=match)

    fails(ArgumentError, r"^hparam_dict and metric_dict should be dictionary\.$", [1], {})
    fails(ValueRangeError, r"^value should be one of int, float, str, bool, or torch\.Tensor$", {"a": [1]}, {})
    text = r"^parameter: hparam_domain_discrete\[a\] should be a list of same type as hparam_dict\[a\]\.$"
    for domain in ({"a": ["x"]}, {"a": 1}):
        fails(ArgumentError, text, {"a": 1}, {}, domain)
    with pytest.raises(ArgumentError, match=r"^parameter: metric_dict should be a dictionary, nothing logged\.$"):
        hparams({}, None)
