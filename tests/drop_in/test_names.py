"""Names of PyTorch's that libraries import or mention are there; `tools/library_names.py` has listed them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tools.library_names import LIST, mentions

import weft
from weft import nn, onnx
from weft._C import Graph, _jit_can_fuse_on_cpu, _jit_set_profiling_mode
from weft._inductor.cpp_builder import get_cpp_compiler

PROGRAM = """
import warnings

warnings.simplefilter("ignore")  # of former names
import torch
from tools.library_names import LIST, resolve

for path in LIST.read_text().split():
    try:
        resolve(path)
    except AttributeError:
        print(path)
"""


def test_the_names_that_libraries_mention_are_there():
    done = subprocess.run(
        [sys.executable, "-c", f"import weft; weft.as_torch()\n{PROGRAM}"],
        cwd=LIST.parents[2],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


ATTRIBUTES = """
torch.distributed.device_mesh torch.distributed.tensor.DTensor torch.distributed.fsdp.FullyShardedDataParallel
torch.torch torch._utils torch._C._functorch torch.utils.tensorboard torch.package torch._dynamo torch._inductor.config
"""


def test_attributes_of_modules_are_there_without_an_import():
    program = f"import weft; weft.as_torch(); import torch\nfor name in {ATTRIBUTES.split()}: eval(name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_mentions_are_read_from_sources():
    source = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\nF.relu(nn.Linear.x)\ntorch.a.b().c"
    assert set(mentions(source)) == {
        *("torch", "torch.nn.functional", "torch.nn", "torch.nn.functional.relu", "torch.nn.Linear.x"),
        *("torch.a.b",),
    }


def test_what_has_no_meaning_is_harmless_until_it_is_called():
    assert not isinstance(nn.Linear(1, 1), Graph)
    assert (_jit_can_fuse_on_cpu(), _jit_set_profiling_mode(False)) == (False, None)
    for refused in (Graph, get_cpp_compiler, onnx.symbolic_opset9.softmax):
        with pytest.raises(NotImplementedError, match="PyTorch's own machinery"):
            refused()

    class Own(Graph):
        def __init__(self):
            self.nodes = []

    assert Own().nodes == []


def test_bases_of_libraries_own_classes_are_those_of_the_layers():
    losses = nn.modules.loss
    assert isinstance(nn.MSELoss(), losses._Loss)
    assert isinstance(nn.CrossEntropyLoss(), losses._WeightedLoss)
    assert isinstance(nn.Dropout2d(), nn.modules.dropout._DropoutNd)

    class Own(losses._Loss):
        def forward(self, x):
            return x.sum() if self.reduction == "sum" else x

    assert Own(reduction="sum")(weft.ones(2)) == 2
    assert weft.torch is weft


def test_flat_buffers_are_cut_again():
    tensors = [weft.ones(2, 2), weft.zeros(3)]
    flat = weft._utils._flatten_dense_tensors(tensors)
    assert flat.tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert [part.tolist() for part in weft._utils._unflatten_dense_tensors(flat, tensors)] == [
        x.tolist() for x in tensors
    ]


def test_types_without_tensors_are_refused_where_elements_are_made():
    assert (weft.int4.itemsize, weft.complex32.itemsize, weft.uint4 is weft.uint4) == (1, 4, True)
    with pytest.raises(RuntimeError, match=r"no tensor has elements of type torch\.uint4 here; use torch\.uint8"):
        weft.zeros(2, dtype=weft.uint4)


def test_tensors_are_swapped():
    a, b = nn.Parameter(weft.ones(2)), weft.zeros(3)
    a.grad = weft.ones(2)
    weft.utils.swap_tensors(a, b)
    assert (a.tolist(), b.tolist(), b.grad.tolist()) == ([0, 0, 0], [1, 1], [1, 1])
    assert (type(a), type(b), a.requires_grad, b.requires_grad) == (weft.Tensor, nn.Parameter, False, True)


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [("sum", [2.0, 0.0, 28.0]), ("max", [2.0, float("-inf"), 10.0]), ("prod", [0.0, 1.0, 1920.0])],
)
def test_segments_are_reduced(reduce, expected):
    x = weft.arange(0, 12, 2, dtype=weft.float32)
    assert weft.segment_reduce(x, reduce, offsets=weft.tensor([0, 2, 2, 6])).tolist() == expected
    assert weft.segment_reduce(x, reduce, lengths=weft.tensor([2, 0, 4])).tolist() == expected


def test_products_by_groups():
    a, b = weft.arange(12.0).reshape(6, 2), weft.arange(12.0).reshape(3, 2, 2)
    result = nn.functional.grouped_mm(a, b, offs=weft.tensor([2, 2, 5], dtype=weft.int32))
    assert weft.equal(result, weft.cat([a[:2] @ b[0], a[2:5] @ b[2], weft.zeros(1, 2)]))


def test_data_pipes_are_composed():
    pipe = weft.utils.data.datapipes.iter.IterableWrapper(range(7)).map(lambda x: 2 * x).filter(bool).batch(4)
    assert list(pipe) == [[2, 4, 6, 8], [10, 12]]


def test_layers_of_a_kind_have_a_base_by_which_libraries_find_them():
    pooling, padding = nn.modules.pooling, nn.modules.padding
    assert isinstance(nn.MaxPool2d(2), pooling._MaxPoolNd)
    assert isinstance(nn.AvgPool1d(2), pooling._AvgPoolNd)
    assert isinstance(nn.AdaptiveAvgPool3d(2), pooling._AdaptiveAvgPoolNd)
    assert isinstance(nn.AdaptiveMaxPool2d(2), pooling._AdaptiveMaxPoolNd)
    assert isinstance(nn.LPPool2d(2, 2), pooling._LPPoolNd)
    assert isinstance(nn.MaxUnpool2d(2), pooling._MaxUnpoolNd)
    assert isinstance(nn.ZeroPad2d(1), padding._ConstantPadNd)
    assert isinstance(nn.ReflectionPad1d(1), padding._ReflectionPadNd)
    assert isinstance(nn.ReplicationPad3d(1), padding._ReplicationPadNd)
    assert isinstance(nn.CircularPad1d(1), padding._CircularPadNd)


def test_functions_that_libraries_ask_about_a_program_answer():
    assert weft._C._is_tracing() is False
    assert weft.autograd._is_checkpoint_valid()
    assert weft._has_compatible_shallow_copy_type(weft.ones(1), weft.ones(2))
    assert not weft._has_compatible_shallow_copy_type(weft.ones(1), weft.ones(2, device="meta"))
    assert nn.modules.utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    called: list[int] = []
    weft.cuda._lazy_call(lambda: called.append(1))
    assert called == [1] * weft.cuda.is_available()


def test_the_list_of_public_names_has_functions_and_types():
    assert {"sum", "Tensor", "float32", "compile"} <= set(weft.__all__)
    assert all(hasattr(weft, name) for name in weft.__all__)


def test_the_covariance_has_a_factor_by_its_inverse():
    factor = weft.distributions.multivariate_normal._precision_to_scale_tril(weft.tensor([[4.0, 0.0], [0.0, 1.0]]))
    assert factor.tolist() == [[0.5, 0.0], [0.0, 1.0]]
