"""Modules that PyTorch's module database leaves out, refused calls of modules, and `nn.init`. Needs torch.

Each is text that is evaluated in either framework, where `torch` and `nn` stand for that framework's.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch

import weft
from tests.nn.refusals import ANSWERS, REFUSALS, evaluated, refusal
from tests.oracle import modules
from tests.oracle.modules import Call, Twins, converted, difference_of_state, first_difference, observe, quietly, raised

CALLS: dict[str, tuple[Any, ...]] = {  # the module: shapes of its inputs
    "nn.AlphaDropout(0.3).eval()": ((3, 4),),
    "nn.AlphaDropout(0.3)": ((3, 4),),
    "nn.Dropout(0.5)": ((3, 4),),
    "nn.Dropout(1.0)": ((3, 4),),
    "nn.Dropout(0.0)": ((3, 4),),
    "nn.Dropout1d(0.5)": ((2, 3, 4),),
    "nn.Dropout2d(0.5, inplace=True)": ((2, 3, 4, 4),),
    "nn.Dropout3d(0.5)": ((2, 3, 2, 2, 2),),
    "nn.FeatureAlphaDropout(0.5)": ((2, 3, 4),),
    "nn.FeatureAlphaDropout(0.5).eval()": ((2, 3, 4),),
    "nn.RReLU().eval()": ((3, 4),),
    "nn.RReLU(0.2, 0.2)": ((3, 4),),
    "nn.Hardsigmoid(inplace=True)": ((3, 4),),
    "nn.ChannelShuffle(2)": ((1, 4, 2, 2),),
    "nn.PixelShuffle(2)": ((1, 4, 2, 2),),
    "nn.PixelUnshuffle(2)": ((1, 1, 4, 4),),
    "nn.Flatten()": ((2, 3, 4),),
    "nn.Flatten(0, 1)": ((2, 3, 4),),
    "nn.Unflatten(1, (2, 2))": ((2, 4),),
    "nn.Unflatten(-1, [3, -1])": ((2, 6),),
    "nn.Fold((4, 5), (2, 3))": ((1, 12, 9),),
    "nn.Unfold((2, 3), padding=1)": ((1, 2, 4, 5),),
    "nn.Upsample(scale_factor=2)": ((1, 2, 3),),
    "nn.Upsample(size=(4, 5), mode='bilinear', align_corners=True)": ((1, 2, 3, 3),),
    "nn.Upsample(scale_factor=(2, 1.5), mode='bicubic')": ((1, 1, 4, 4),),
    "nn.Upsample(scale_factor=2, mode='trilinear')": ((1, 1, 2, 2, 2),),
    "nn.UpsamplingNearest2d(scale_factor=2)": ((1, 2, 2, 3),),
    "nn.UpsamplingBilinear2d(size=(4, 5))": ((1, 2, 2, 3),),
    "nn.CosineSimilarity(0, 1e-3)": ((3, 4), (3, 4)),
    "nn.PairwiseDistance(3.0, keepdim=True)": ((3, 4), (3, 4)),
    "nn.TripletMarginLoss(swap=True)": ((3, 4), (3, 4), (3, 4)),
    "nn.TripletMarginLoss(p=1, reduction='none')": ((3, 4), (3, 4), (3, 4)),
    "nn.TripletMarginWithDistanceLoss(margin=0.5, swap=True)": ((3, 4), (3, 4), (3, 4)),
    "nn.TripletMarginWithDistanceLoss(distance_function=nn.CosineSimilarity())": ((3, 4), (3, 4), (3, 4)),
    "nn.Identity(3, unused=True)": ((2, 3),),
    "nn.Sequential(nn.Linear(3, 4), nn.ReLU6(), nn.Sequential(nn.Linear(4, 2)))": ((2, 3),),
    "nn.Softmax()": ((2, 3),),
    "nn.Softmin()": ((2, 3, 4),),
    "nn.LogSoftmax()": ((3,),),
    "nn.Softmax2d()": ((3, 2, 2),),
    "nn.Hardtanh(min_value=-0.5, max_value=0.25)": ((3, 4),),
    "nn.GLU(0)": ((4, 3),),
    "nn.Threshold(0.1, 20, inplace=True)": ((3, 4),),
    "nn.LocalResponseNorm(3, 0.1, 0.5, 2.0)": ((1, 4, 3),),
    "nn.ConvTranspose2d(2, 4, (2, 3), stride=(2, 1), padding=1, output_padding=(1, 0), groups=2, dilation=(1, 2))": (
        (1, 2, 3, 4),
    ),
    "nn.Conv1d(4, 2, 3, padding='same', padding_mode='reflect', groups=2, dilation=2)": ((1, 4, 6),),
    "nn.BatchNorm1d(3, momentum=None)": ((4, 3),),
    "nn.BatchNorm1d(3, track_running_stats=False).eval()": ((4, 3, 2),),
    "nn.BatchNorm2d(3, affine=False).eval()": ((4, 3, 2, 2),),
    "nn.InstanceNorm1d(3, affine=True, track_running_stats=True)": ((2, 3, 4),),
    "nn.InstanceNorm1d(3, affine=True, bias=False)": ((2, 3, 4),),
    "nn.GroupNorm(2, 4, bias=False)": ((2, 4, 3),),
    "nn.LayerNorm((3, 4), bias=False)": ((2, 3, 4),),
    "nn.MultiheadAttention(4, 2, kdim=3, vdim=2, batch_first=True)": ((2, 3, 4), (2, 5, 3), (2, 5, 2)),
    "nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, activation='gelu')": ((3, 2, 4), (5, 2, 4)),
    "nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation=nn.SiLU(), norm_first=True)": ((3, 2, 4),),
}


def difference_of_call(text: str) -> str:
    """What differs between a module of `CALLS` in both frameworks, in float64."""
    with quietly():
        args = tuple(torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in CALLS[text])
        theirs, ours = evaluated(text, torch).double(), evaluated(text, weft).double()
        twins = Twins(theirs, ours, Call(args, {}), Call(converted(args), {}))
        fault = difference_of_state(twins)
        if fault:
            return fault
        wanted = observe(torch, theirs, twins.call, twice=not twins.is_random)
        found = observe(weft, ours, twins.our_call, twice=not twins.is_random)
        return first_difference(wanted, found, 1, values=not twins.is_random)


# --- refusals -------------------------------------------------------------------------------------------------


def difference_of_refusal(text: str) -> str:
    """What differs between how PyTorch refuses a call and what is recorded."""
    with quietly():
        found = refusal(torch, text)
    return "" if found == REFUSALS[text] else f"is recorded as {REFUSALS[text]}, not {found}"


def main() -> None:
    """Record how PyTorch refuses the calls of `tests/nn/refusals.json`: `python -m tests.oracle.module_calls`."""
    with quietly():
        found = {text: refusal(torch, text) for text in REFUSALS}
    ANSWERS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


# --- initial values -------------------------------------------------------------------------------------------

INITIAL = [
    "init.calculate_gain('leaky_relu')",
    "init.calculate_gain('leaky_relu', 0.2)",
    "init.calculate_gain('tanh')",
    "init.calculate_gain('selu')",
    "init.calculate_gain('conv_transpose3d')",
    "init.calculate_gain('sigmoid', 3)",
    "init.calculate_gain('foo')",
    "init.calculate_gain('leaky_relu', True)",
    "init.calculate_gain('leaky_relu', 'a')",
    "init.eye_(torch.empty(2, 3))",
    "init.eye_(torch.empty(3))",
    "init.dirac_(torch.empty(4, 4, 3), groups=2)",
    "init.dirac_(torch.empty(2, 2, 3, 3))",
    "init.dirac_(torch.empty(3, 4, 3), groups=2)",
    "init.dirac_(torch.empty(3))",
    "init.constant_(torch.empty(2, 2), 0.3)",
    "init.ones_(torch.empty(2))",
    "init.zeros_(torch.empty(2))",
    "init.kaiming_uniform_(torch.empty(0, 3))",
    "init.orthogonal_(torch.empty(0, 3))",
    "init.xavier_uniform_(torch.empty(3))",
    "init.xavier_normal_(torch.empty(3))",
    "init.kaiming_normal_(torch.empty(3))",
    "init.kaiming_uniform_(torch.empty(3, 3), mode='fan')",
    "init.kaiming_normal_(torch.empty(3, 3), nonlinearity='foo')",
    "init.orthogonal_(torch.empty(3))",
    "init.sparse_(torch.empty(3), 0.1)",
    "init.sparse_(torch.empty(4, 2), 1.0)",
    "init.normal_(torch.empty(2), std=-1)",
    "init.normal_(torch.empty(2, dtype=torch.int64))",
    "init.trunc_normal_(torch.empty(3), std=0.0)",
    "init.constant(torch.empty(2), 1.0)",
    "init.eye(torch.empty(2, 2))",
    "init.dirac(torch.empty(2, 2, 2))",
    "init.normal(torch.empty(2), 0.0, 0.0)",
    "init.uniform(torch.empty(2), 1.0, 1.0)",
    "init.sparse(torch.empty(2, 2), 1.0)",
    "init.xavier_normal(torch.empty(3))",
    "init.kaiming_normal(torch.empty(3))",
    "init.kaiming_uniform(torch.empty(0, 3))",
    "init.xavier_uniform(torch.empty(3))",
    "init.orthogonal(torch.empty(1, 1)).abs()",
    "init._calculate_fan_in_and_fan_out(torch.empty(2, 3, 4))",
    "init._calculate_correct_fan(torch.empty(2, 3), 'fan_out')",
]
"""Calls of `nn.init` whose results do not depend on chance, or that are refused."""


def difference_of_plain(text: str) -> str:
    """What differs in the result, the warnings or the exception of a call."""
    outcomes = []
    for lib in (torch, weft):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found: list[Any] = []
            error = raised(lambda lib=lib, found=found: found.append(evaluated(text, lib)))
        outcomes.append((found, error, [(w.category, str(w.message)) for w in caught]))
    (theirs, their_error, their_warnings), (ours, our_error, our_warnings) = outcomes
    if their_warnings != our_warnings:
        return f"warns {our_warnings}, not {their_warnings}"
    if their_error is not None or our_error is not None:
        return modules.texts_differ(their_error, our_error)
    if isinstance(theirs[0], torch.Tensor):
        return first_difference({"result": theirs[0]}, {"result": ours[0]}, 1, values=True)
    return "" if theirs == ours else f"is {ours[0]!r}, not {theirs[0]!r}"


if __name__ == "__main__":
    main()
