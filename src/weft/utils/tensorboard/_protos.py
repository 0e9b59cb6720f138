"""The names used from the package `tensorboard`: the messages of event files, and their writer."""

# pyright: reportAttributeAccessIssue=false
# (protobuf creates its classes when their module is imported)

from __future__ import annotations

from typing import Any

try:
    from google.protobuf.message import Message
    from google.protobuf.struct_pb2 import ListValue, Value
    from google.protobuf.text_format import MessageToString
    from PIL import Image, ImageDraw, ImageFont
    from tensorboard.compat import tf
    from tensorboard.compat.proto import (
        attr_value_pb2,
        config_pb2,
        event_pb2,
        graph_pb2,
        node_def_pb2,
        step_stats_pb2,
        summary_pb2,
        tensor_pb2,
        tensor_shape_pb2,
        versions_pb2,
    )
    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
    from tensorboard.plugins.hparams import metadata as hparams_metadata
    from tensorboard.plugins.mesh import metadata as mesh_metadata
    from tensorboard.plugins.mesh import plugin_data_pb2 as mesh_pb2
    from tensorboard.plugins.pr_curve import plugin_data_pb2 as pr_curve_pb2
    from tensorboard.plugins.projector import projector_config_pb2
    from tensorboard.plugins.text import plugin_data_pb2 as text_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.summary.writer.record_writer import RecordWriter
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "weft.utils.tensorboard needs the package tensorboard; install it with: pip install weft[tensorboard]"
    ) from error

__all__ = [
    "EventFileWriter",
    "Image",
    "ImageDraw",
    "ImageFont",
    "ListValue",
    "Message",
    "MessageToString",
    "RecordWriter",
    "Value",
    "hparams_metadata",
    "mesh_metadata",
    "tf",
]

# The events of a file
Event: Any = event_pb2.Event
SessionLog: Any = event_pb2.SessionLog
TaggedRunMetadata: Any = event_pb2.TaggedRunMetadata
Summary: Any = summary_pb2.Summary
SummaryMetadata: Any = summary_pb2.SummaryMetadata
HistogramProto: Any = summary_pb2.HistogramProto
TensorProto: Any = tensor_pb2.TensorProto
TensorShapeProto: Any = tensor_shape_pb2.TensorShapeProto

# Graphs
AttrValue: Any = attr_value_pb2.AttrValue
GraphDef: Any = graph_pb2.GraphDef
NodeDef: Any = node_def_pb2.NodeDef
RunMetadata: Any = config_pb2.RunMetadata
StepStats: Any = step_stats_pb2.StepStats
DeviceStepStats: Any = step_stats_pb2.DeviceStepStats
VersionDef: Any = versions_pb2.VersionDef

# Plugins
hparams_api: Any = api_pb2
hparams_data: Any = plugin_data_pb2
layouts: Any = layout_pb2
MeshPluginData: Any = mesh_pb2.MeshPluginData
PrCurvePluginData: Any = pr_curve_pb2.PrCurvePluginData
ProjectorConfig: Any = projector_config_pb2.ProjectorConfig
TextPluginData: Any = text_pb2.TextPluginData
