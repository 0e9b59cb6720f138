"""Writers of event files."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsInt

from weft._base.files import make_output_folder
from weft._base.types import Arg, Json, Kwargs, PathLike, PyTree
from weft._base.usage import log_api_usage_once
from weft.errors import ArgumentError, PreconditionError, ValueRangeError
from weft.utils.tensorboard import _projector, summary
from weft.utils.tensorboard._arrays import figures_to_images, to_numpy
from weft.utils.tensorboard._graph import graph
from weft.utils.tensorboard._protos import (
    Event,
    EventFileWriter,
    Message,
    MessageToString,
    ProjectorConfig,
    SessionLog,
    TaggedRunMetadata,
)

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.nn._module import Module


class FileWriter:
    """An event file in a folder, written by its own thread.

    The thread writes when `max_queue` events are waiting, and every `flush_secs` seconds. The file's name ends in
    `filename_suffix`.
    """

    def __init__(
        self, log_dir: PathLike, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        if "://" not in str(log_dir):
            make_output_folder(Path(log_dir))
        self._options: tuple[Any, ...] = str(log_dir), max_queue, flush_secs, filename_suffix
        self.event_writer = EventFileWriter(*self._options)
        self._closed = False

    def get_logdir(self) -> str:
        """The folder of the file."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Arg, step: SupportsInt | None = None, walltime: float | None = None) -> None:
        """Add an event with this step, and with the time `walltime` (seconds since 1970) or now."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, summary: Message, global_step: SupportsInt | None = None, walltime: float | None = None
    ) -> None:
        """Add an event with this summary."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: tuple[Message, Message], walltime: float | None = None) -> None:
        """Add an event with a graph, and one with its run metadata."""
        message, run = graph_profile
        self.add_event(Event(graph_def=message.SerializeToString()), None, walltime)
        tagged = TaggedRunMetadata(tag="step1", run_metadata=run.SerializeToString())
        self.add_event(Event(tagged_run_metadata=tagged), None, walltime)

    def flush(self) -> None:
        """Write the waiting events."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write the waiting events, end the thread and close the file."""
        self.event_writer.close()
        self._closed = True

    def reopen(self) -> None:
        """If this is closed, continue in a new file of the same folder."""
        if self._closed:
            self.event_writer = EventFileWriter(*self._options)
            self._closed = False


class SummaryWriter:
    """Writes what TensorBoard shows into event files of a folder. Close it by `close`, or use it as a context manager.

    log_dir            the folder; by default `runs/<date>_<time>_<host><comment>`
    purge_step         TensorBoard hides what an earlier run has written into this folder from this step on
    max_queue          the largest number of events that wait to be written
    flush_secs         the longest time that an event waits
    filename_suffix    the end of the files' names

    In all `add_…` methods, `tag` is the name that TensorBoard shows, `global_step` the step of the value, and
    `walltime` the time in seconds since 1970, by default now. A closed writer that is used again starts a new file.
    """

    def __init__(
        self,
        log_dir: PathLike | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        log_api_usage_once("tensorboard.create.summarywriter")
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = log_dir
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.default_bins = summary.default_bins()
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._projector_config = ProjectorConfig()
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The writer of the folder's own file, opened if it is closed."""
        return self._open()[0]

    def _open(self) -> tuple[FileWriter, dict[str, FileWriter]]:
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = self._new_writer(str(self.log_dir))
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                started = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=self.purge_step, session_log=started))
                self.purge_step = None
        return self.file_writer, self.all_writers

    def _new_writer(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, message: Message, global_step: SupportsInt | None, walltime: float | None) -> None:
        self._get_file_writer().add_summary(message, global_step, walltime)

    def get_logdir(self) -> PathLike:
        """The folder of the event files."""
        return self.log_dir

    # --- numbers ---

    def add_scalar(
        self,
        tag: str,
        scalar_value: Arg,
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Add a number. `new_style` writes it as a tensor; then `double_precision` keeps a `float64`."""
        log_api_usage_once("tensorboard.logging.add_scalar")
        message = summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision)
        self._add(message, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Arg],
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add numbers to one chart. Each name gets a file in its own folder, with the tag `main_tag`."""
        log_api_usage_once("tensorboard.logging.add_scalars")
        walltime = time.time() if walltime is None else walltime
        message = {name: summary.scalar(main_tag, value) for name, value in tag_scalar_dict.items()}
        main, writers = self._open()
        for name, value in message.items():
            folder = f"{main.get_logdir()}/{main_tag.replace('/', '_')}_{name}"
            if folder not in writers:
                writers[folder] = self._new_writer(folder)
            writers[folder].add_summary(value, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Tensor, global_step: SupportsInt | None = None, walltime: float | None = None
    ) -> None:
        """Add a whole tensor."""
        log_api_usage_once("tensorboard.logging.add_tensor")
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Arg,
        global_step: SupportsInt | None = None,
        bins: str | Arg = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Add a histogram of all elements.

        `bins` is "tensorflow" for bins that grow by 10 %, or as for `numpy.histogram`. If there are more than
        `max_bins`, neighbouring ones are merged.
        """
        log_api_usage_once("tensorboard.logging.add_histogram")
        limits = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(summary.histogram(tag, values, limits, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: SupportsFloat,
        max: SupportsFloat,
        num: SupportsFloat,
        sum: SupportsFloat,
        sum_squares: SupportsFloat,
        bucket_limits: Arg,
        bucket_counts: Arg,
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add a histogram that is already counted; `bucket_limits` are the upper ends of the buckets."""
        log_api_usage_once("tensorboard.logging.add_histogram_raw")
        if len(bucket_limits) != len(bucket_counts):
            raise ValueRangeError("len(bucket_limits) != len(bucket_counts), see the document.")
        message = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(message, global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Arg,
        predictions: Arg,
        global_step: SupportsInt | None = None,
        num_thresholds: int = 127,
        weights: Arg | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add the precision-recall curve of predictions from 0 to 1 against boolean labels."""
        log_api_usage_once("tensorboard.logging.add_pr_curve")
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Arg,
        false_positive_counts: Arg,
        true_negative_counts: Arg,
        false_negative_counts: Arg,
        precision: Arg,
        recall: Arg,
        global_step: SupportsInt | None = None,
        num_thresholds: int = 127,
        weights: Arg | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add a precision-recall curve that is already computed: each row has `num_thresholds` numbers."""
        log_api_usage_once("tensorboard.logging.add_pr_curve_raw")
        rows = (
            true_positive_counts,
            false_positive_counts,
            true_negative_counts,
            false_negative_counts,
            precision,
            recall,
        )
        self._add(summary.pr_curve_raw(tag, *rows, num_thresholds, weights), global_step, walltime)

    # --- images, sounds, texts ---

    def add_image(
        self,
        tag: str,
        img_tensor: Arg,
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add an image: `uint8`, or numbers from 0 to 1. `dataformats` has a letter for each dim."""
        log_api_usage_once("tensorboard.logging.add_image")
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Arg,
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add images in a grid, eight in a row, as one image."""
        log_api_usage_once("tensorboard.logging.add_images")
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Arg,
        box_tensor: Arg,
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Sequence[str] | str | None = None,
    ) -> None:
        """Add an image with boxes (left, top, right, bottom), and with labels if there is one for each box."""
        log_api_usage_once("tensorboard.logging.add_image_with_boxes")
        names = [labels] if isinstance(labels, str) else labels
        if names is not None and len(names) != box_tensor.shape[0]:
            names = None
        message = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, names)
        self._add(message, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Arg,
        global_step: SupportsInt | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Add a matplotlib figure, or a list of figures as one image; they are closed afterwards if `close`."""
        log_api_usage_once("tensorboard.logging.add_figure")
        dataformats = "NCHW" if isinstance(figure, list) else "CHW"
        self.add_image(tag, figures_to_images(figure, close), global_step, walltime, dataformats)

    def add_video(
        self,
        tag: str,
        vid_tensor: Arg,
        global_step: SupportsInt | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Add videos (number, time, channel, height, width) in a grid: `uint8`, or numbers from 0 to 1."""
        log_api_usage_once("tensorboard.logging.add_video")
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Arg,
        global_step: SupportsInt | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add a sound of one channel from -1 to 1."""
        log_api_usage_once("tensorboard.logging.add_audio")
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: SupportsInt | None = None, walltime: float | None = None
    ) -> None:
        """Add a text in Markdown."""
        log_api_usage_once("tensorboard.logging.add_text")
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_mesh(
        self,
        tag: str,
        vertices: Arg,
        colors: Arg | None = None,
        faces: Arg | None = None,
        config_dict: Mapping[str, Json] | None = None,
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add points in space (batch, point, 3), their colours from 0 to 255, and triangles between them.

        `config_dict` sets camera, lights and material of three.js.
        """
        log_api_usage_once("tensorboard.logging.add_mesh")
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    # --- models and runs ---

    def add_graph(
        self, model: Module, input_to_model: PyTree = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Add the operators that a module records for an input, or a tuple of inputs, grouped by module.

        `verbose` prints the graph. `use_strict_trace` is accepted for compatibility: nothing is traced twice.
        """
        log_api_usage_once("tensorboard.logging.add_graph")
        del use_strict_trace
        self._get_file_writer().add_graph(graph(model, input_to_model, verbose))

    def add_embedding(
        self,
        mat: Arg,
        metadata: Sequence[object] | None = None,
        label_img: Arg | None = None,
        global_step: SupportsInt | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Add points (point, coordinate) for the projector, with a label and a square image for each.

        With `metadata_header`, each label is a row with an entry for each column.
        """
        log_api_usage_once("tensorboard.logging.add_embedding")
        points = to_numpy(mat)
        images = None if label_img is None else to_numpy(label_img)
        _projector.check_embedding(points, metadata, images, metadata_header)
        step = str(0 if global_step is None else global_step).zfill(5)
        place = f"{step}/{self._encode(tag)}"
        main = self._get_file_writer().get_logdir()
        _projector.write(f"{main}/{place}", points, metadata, images, metadata_header)
        entry = self._projector_config.embeddings.add(tensor_name=f"{tag}:{step}", tensor_path=f"{place}/tensors.tsv")
        if metadata is not None:
            entry.metadata_path = f"{place}/metadata.tsv"
        if images is not None:
            entry.sprite.image_path = f"{place}/sprite.png"
            entry.sprite.single_image_dim.extend([images.shape[3], images.shape[2]])
        _projector.write_config(main, MessageToString(self._projector_config))

    @staticmethod
    def _encode(rawstr: str) -> str:
        """A tag as the name of a folder."""
        return rawstr.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")

    def add_hparams(
        self,
        hparam_dict: Kwargs,
        metric_dict: Kwargs,
        hparam_domain_discrete: dict[str, list[object]] | None = None,
        run_name: str | None = None,
        global_step: SupportsInt | None = None,
    ) -> None:
        """Add a row to the table of runs: hyperparameters (numbers, texts, None) and the metrics of this run.

        It becomes a run of its own in the folder `run_name`, by default the time.
        """
        log_api_usage_once("tensorboard.logging.add_hparams")
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise ArgumentError("hparam_dict and metric_dict should be dictionary.")
        records = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        records += tuple(summary.scalar(tag, value) for tag, value in metric_dict.items())
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as run:
            for message in records:
                run._add(message, global_step, None)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[object]]]) -> None:
        """Combine scalars in charts, once per writer: {category: {chart: ["Multiline" or "Margin", tags]}}."""
        log_api_usage_once("tensorboard.logging.add_custom_scalars")
        self._add(summary.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Combine scalars in one chart."""
        log_api_usage_once("tensorboard.logging.add_custom_scalars_multilinechart")
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show a scalar between two others: the tags of the value, the lower and the upper bound."""
        log_api_usage_once("tensorboard.logging.add_custom_scalars_marginchart")
        if len(tags) != 3:
            raise PreconditionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    # --- the end ---

    def flush(self) -> None:
        """Write the waiting events."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write the waiting events, end the threads and close the files."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
