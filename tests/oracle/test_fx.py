"""Traced programs have PyTorch's graphs and numbers, and its files with them are read."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

import weft
from tests.fx.described import described, numbers, tensors, traced
from tests.fx.programs import PROGRAMS, REFUSED
from tests.fx.record import ANSWERS, answers

torch = pytest.importorskip("torch")
torch.fx.PH = torch.fx._symbolic_trace.PH

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]


def test_what_is_recorded_is_what_pytorch_does():
    assert json.loads(json.dumps(answers(torch))) == json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_the_same_numbers(program):
    (_, theirs), (_, ours) = traced(torch, program), traced(weft, program)
    ours.load_state_dict({name: weft.from_numpy(x.numpy().copy()) for name, x in theirs.state_dict().items()})
    expected = flat(numbers(theirs(*tensors(torch, program.inputs))))
    assert flat(numbers(ours(*tensors(weft, program.inputs)))) == pytest.approx(
        expected, rel=1e-5, abs=1e-5, nan_ok=True
    )


def flat(result: Any) -> list[Any]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list):
        return [x for part in result for x in flat(part)]
    return [result] if isinstance(result, int | float) else []


@pytest.mark.parametrize("name", REFUSED)
def test_the_same_is_refused(name):
    kinds = []
    for framework in (torch, weft):
        with pytest.raises(Exception, match=r".") as error:
            framework.fx.symbolic_trace(REFUSED[name](framework))
        kinds.append(next(kind for kind in type(error.value).__mro__ if kind.__module__ == "builtins"))
        text = str(error.value)
    assert kinds[0] is kinds[1]
    assert text


FILES = ["residual", "transformer", "parameters_and_buffers", "math_functions", "operators", "concrete_tree"]


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.name in FILES], ids=lambda program: program.name)
def test_files_of_pytorch_are_read(program):
    module = traced(torch, program)[1]
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = weft.load(file, weights_only=False)
    expected = flat(numbers(module(*tensors(torch, program.inputs))))
    assert flat(numbers(loaded(*tensors(weft, program.inputs)))) == pytest.approx(expected, rel=1e-5, abs=1e-5)


EXPRESSIONS = (
    """
x + y | x - 1 | 2 * y | x / y | x // 2 | x % 3 | x ** 2 | x @ y | -x | ~(x > 0) | abs(x) | x[0] | x[1:, 0]
x[..., None] | x[:, ::2] | x[y > 0] | x.relu() | x.sum() | x.sum(dim=1) | x.sum(1, keepdim=True) | x.view(-1)
x.reshape(x.size(0), -1) | x.T | x.shape | x.shape[0] | x.size() | x.dim() | x.dtype | x.to(t.float64)
x.transpose(0, 1) | x.permute(1, 0) | x.unsqueeze(0) | x.clamp(min=0) | x.softmax(dim=-1) | x.type_as(y)
x.chunk(2) | x.chunk(2, dim=1)[0] | x.add_(1) | x.mul_(y) | x.masked_fill(x > 0, 0.0) | x.contiguous()
x.expand(2, -1) | x.new_zeros(2) | x.float() | x.item() | x.max(dim=1) | x.max(1)[0] | x.topk(2).values | x.eq(y)
x.lt(2) | x.mean((0, 1)) | x.flatten(1) | x.repeat(1, 2) | x.norm(p=2) | x.detach() | t.relu(x) | t.add(x, y)
t.add(x, 1, alpha=2) | t.cat([x, y]) | t.cat((x, y), 1) | t.stack([x, y], dim=0) | t.matmul(x, y) | t.bmm(x, y)
t.exp(x) | t.sigmoid(x) | t.sum(x) | t.sum(x, 1) | t.mean(x, dim=1, keepdim=True) | t.max(x, y) | t.max(x, dim=0)
t.where(x > 0, x, y) | t.clamp(x, 0, 1) | t.clamp(x, max=1) | t.split(x, 2, dim=0) | t.chunk(x, 2) | t.squeeze(x, 0)
t.unsqueeze(x, 1) | t.transpose(x, 0, 1) | t.permute(x, (1, 0)) | t.reshape(x, (-1,)) | t.flatten(x)
t.zeros_like(x) | t.ones_like(x, dtype=t.int64) | t.full_like(x, 2) | t.arange(x.size(0)) | t.zeros((x.size(0), 3))
t.ones((2, x.shape[0])) | t.masked_select(x, y) | t.gather(x, 1, y) | t.index_select(x, 0, y)
t.einsum("ij,jk->ik", x, y) | t.sqrt(x) | t.rsqrt(x) | t.pow(x, 2) | t.pow(2, x)
t.div(x, y, rounding_mode="floor") | t.argmax(x, dim=1) | t.argsort(x, dim=1, descending=True) | t.sort(x)
t.topk(x, 2, dim=1) | t.cumsum(x, 0) | t.tril(x) | t.triu(x, diagonal=1) | t.var(x, dim=1) | t.std(x, 1)
t.isnan(x) | t.logical_and(x, y) | t.outer(x, y) | t.roll(x, 1, 0) | t.flip(x, [0]) | t.addmm(x, y, y)
t.baddbmm(x, y, y) | t.dropout(x, 0.5, True) | t.softmax(x, dim=1) | t.log_softmax(x, 1) | t.conv2d(x, y)
t.bitwise_and(x, y) | t.floor_divide(x, y) | t.remainder(x, 2) | t.broadcast_to(x, (2, 2)) | t.tile(x, (2,))
t.movedim(x, 0, 1) | t.unbind(x) | t.diag(x) | t.diagonal(x, 0) | t.logsumexp(x, 1) | t.lerp(x, y, 0.5)
t.addcmul(x, y, y, value=2) | t.nan_to_num(x) | t.linalg.norm(x, dim=1) | t.nn.functional.relu(x, inplace=True)
f.linear(x, y) | f.linear(x, y, None) | f.conv1d(x, y, padding=1) | f.conv2d(x, y, None, 1, 1)
f.conv_transpose2d(x, y, stride=2) | f.max_pool2d(x, 2) | f.max_pool2d(x, 2, 2) | f.avg_pool2d(x, 2, stride=1)
f.adaptive_avg_pool2d(x, (1, 1)) | f.adaptive_max_pool2d(x, 1) | f.relu6(x) | f.gelu(x) | f.silu(x, inplace=True)
f.mish(x) | f.hardswish(x) | f.hardsigmoid(x) | f.leaky_relu(x, 0.1) | f.elu(x) | f.selu(x) | f.celu(x)
f.prelu(x, y) | f.softplus(x) | f.softsign(x) | f.softmin(x, 1) | f.glu(x) | f.dropout(x) | f.dropout2d(x, 0.2)
f.alpha_dropout(x) | f.layer_norm(x, (3,), y) | f.group_norm(x, 2) | f.batch_norm(x, y, y, training=True)
f.instance_norm(x) | f.rms_norm(x, (3,)) | f.embedding(x, y) | f.embedding_bag(x, y) | f.one_hot(x, 3)
f.pad(x, (1, 1)) | f.pad(x, (1, 1), "reflect") | f.interpolate(x, size=(4, 4), mode="bilinear")
f.grid_sample(x, y) | f.pixel_shuffle(x, 2) | f.unfold(x, 2) | f.fold(x, 2, 2) | f.cosine_similarity(x, y)
f.pairwise_distance(x, y) | f.mse_loss(x, y) | f.cross_entropy(x, y) | f.nll_loss(x, y)
f.binary_cross_entropy(x, y) | f.binary_cross_entropy_with_logits(x, y) | f.kl_div(x, y, reduction="batchmean")
f.huber_loss(x, y) | f.smooth_l1_loss(x, y) | f.triplet_margin_loss(x, y, y) | f.ctc_loss(x, y, y, y)
f.scaled_dot_product_attention(x, y, y) | f.scaled_dot_product_attention(x, y, y, is_causal=True)
f.gumbel_softmax(x) | f.hardtanh(x) | f.hardshrink(x) | f.softshrink(x) | f.tanhshrink(x)
f.local_response_norm(x, 2) | f.lp_pool2d(x, 2, 2) | f.affine_grid(x, [1, 1, 2, 2]) | f.multi_margin_loss(x, y)
f.poisson_nll_loss(x, y) | f.gaussian_nll_loss(x, y, y) | f.hinge_embedding_loss(x, y) | f.soft_margin_loss(x, y)
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)
"""Operators, methods and functions. Not among them are functions of `torch.functional`, such as `norm`, which pass on
other arguments there, and those of `nn.functional` that call methods or functions of other names."""


def nodes(framework: Any, expression: str) -> Any:
    scope = {"t": framework, "f": framework.nn.functional}
    return described(framework.fx.symbolic_trace(eval(f"lambda x, y: {expression}", scope)))["nodes"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_same_nodes(expression):
    assert nodes(weft, expression) == nodes(torch, expression)
