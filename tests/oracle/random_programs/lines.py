"""The lines that a random program is made of: PyTorch source with holes, by what they do and what they need.

`{x}` is a tensor that has what the line needs. The other holes are filled by `holes.Holes`, a fresh draw for each.
"""

from __future__ import annotations

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)

AROUND = ("", "", "", "", "", "", "", "with torch.no_grad(): ", "with torch.enable_grad(): ")
"""What a line may stand under."""


class Kind:
    """Lines that do one sort of thing.

    weight  how often they are drawn, beside other kinds
    names   what the results are assigned to: "t" tensors, "r" anything else, nothing where a line is a statement
    lines   by what `{x}` has to be, a key of `holes.NEEDS`
    """

    def __init__(self, weight: int, names: str, **lines: str) -> None:
        self.weight = weight
        self.names = names
        self.lines = {need: [line.strip() for line in text.strip().splitlines()] for need, text in lines.items()}


CREATION = Kind(
    1,
    "t",
    nothing="""
        torch.tensor({values}, dtype={dtype})
        torch.tensor({values}, dtype={dtype})
        torch.tensor({values}, dtype={float_dtype}, requires_grad=True)
        torch.arange({count}, dtype={real_dtype})
        torch.full({size}, {number}, dtype={dtype})
        torch.zeros({size}, dtype={dtype})
        torch.ones({size}, dtype={float_dtype}, requires_grad=True)
    """,
)

VIEWS = Kind(
    7,
    "t",
    any="""
        {x}[{index}]
        {x}[{index}]
        {x}[{index}]
        {x}.detach()
        {x}.data
        {x}.view({shape})
        {x}.view({shape})
        {x}.view_as({x})
        {x}.view({x}.dtype)
        {x}.reshape({shape})
        {x}.reshape_as({x})
        {x}.flatten()
        {x}.ravel()
        {x}.contiguous()
        {x}.expand({wider})
        {x}.expand_as({x})
        {x}.broadcast_to(({wider}))
        {x}.unsqueeze({new_dim})
        {x}.squeeze()
        {x}.as_strided({strided})
        {x}.to({x}.dtype)
        {x}.conj()
        torch.atleast_2d({x})
        torch.nn.Parameter({x}.detach(), requires_grad={x}.is_floating_point())
    """,
    wide="""
        {x}[{index}][{index}]
        {x}.transpose({dim}, {dim})
        {x}.swapaxes({dim}, {dim})
        {x}.permute({order})
        {x}.movedim({dim}, {dim})
        {x}.select({dim}, 0)
        {x}.select({dim}, -1)
        {x}.narrow({dim}, 0, 1)
        {x}.squeeze({dim})
        {x}.unfold({dim}, 1, 1)
        {x}.unfold({dim}, 2, 1)
        {x}.unfold(-1, {last}, 1)
        {x}.unflatten({dim}, (1, -1))
        {x}.flatten({dim})
        {x}.chunk(2, {dim})[0]
        {x}.split(1, {dim})[-1]
        {x}.unbind({dim})[0]
        {x}.tensor_split(2, {dim})[0]
        next(iter({x}))
    """,
    matrix="""
        {x}.t()
        {x}.T
        {x}.mT
        {x}.H
        {x}.diagonal()
        {x}.diagonal({offset})
        {x}.t().reshape(-1)
        {x}.t().contiguous()
        {x}.t().flatten()
    """,
    complex="""
        {x}.real
        {x}.imag
        torch.view_as_real({x})
    """,
    pairs="""
        torch.view_as_complex({x})
    """,
)

VIEWS_IN_PLACE = Kind(
    1,
    "",
    any="""
        {x}.unsqueeze_({new_dim})
        {x}.squeeze_()
    """,
    wide="""
        {x}.transpose_({dim}, {dim})
        {x}.swapaxes_({dim}, {dim})
    """,
    matrix="""
        {x}.t_()
    """,
)

OPERATORS = Kind(
    6,
    "t",
    any="""
        {x} + {y}
        {x} * {y}
        {x} - {y}
        {y} - {x}
        {x} / {positive}
        {x} * {number}
        {number} - {x}
        {x} ** 2
        -{x}
        {x}.square()
        {x} == {y}
        {x} != 0
        torch.logical_not({x})
        torch.isnan({x})
        torch.where({mask}, {x}, {y})
        {x}.masked_fill({mask}, {number})
        {x}[{mask}]
        {x}.masked_select({mask})
        {x}.nonzero()
        {x}.clone()
        {x}.to({cast})
        {x}.to({cast})
        {x}.to({x}.dtype, copy=True)
        {x}.new_ones((2,))
        torch.zeros_like({x})
        torch.cat([{x}.reshape(-1), {z}.reshape(-1)])
        torch.stack([{x}, {x}])
        copy.deepcopy({x})
    """,
    real="""
        {x} > {y}
        {x} <= {number}
        {x} // {positive}
        {x} % {positive}
        {x}.abs()
        {x}.sign()
        {x}.clamp(-1, 2)
        {x}.clamp(min=0)
        torch.maximum({x}, {tensor})
    """,
    floating="""
        {x} / 3
        {x}.relu()
        {x}.exp()
        {x}.sigmoid()
        {x}.sin()
        {x}.tanh()
        {x}.floor()
        torch.lerp({x}, {like}, 0.5)
        torch.nn.functional.relu({x})
    """,
    discrete="""
        {x} & {x}
        {x} | {y}
        ~{x}
        {x}.bitwise_xor({x})
    """,
    rows="""
        {x}[{ids}]
        {x}.index_select(0, torch.tensor([1, 0]))
        {x}.flip(0)
        {x}.roll(1, 0)
        torch.take({x}, torch.tensor([0, -1]))
    """,
    matrix="""
        {x} @ {x}.t()
        {x}.mm({x}.T)
        {x}.tril()
    """,
)

REDUCTIONS = Kind(
    2,
    "t",
    any="""
        {x}.sum()
        {x}.sum()
        {x}.prod()
        {x}.any()
        {x}.all()
        {x}.count_nonzero()
    """,
    wide="""
        {x}.sum({dim})
        {x}.sum({dim}, keepdim=True)
        {x}.sum({dim}, dtype=torch.float64)
        {x}.cumsum({dim})
        {x}.any({dim})
    """,
    ordered="""
        {x}.max()
        {x}.amin()
        {x}.argmax()
    """,
    ordered_rows="""
        {x}.amax({dim})
        {x}.max({dim}).values
        {x}.sort({dim}).values
        {x}.argmin({dim})
    """,
    floating="""
        {x}.mean()
        {x}.logsumexp(-1)
    """,
)

WRITES = Kind(
    6,
    "",
    any="""
        {x}.add_({y})
        {x}.mul_({y})
        {x}.sub_({y})
        {x} += {y}
        {x} *= {number}
        {x}.add_({number})
        {x}.mul_({number})
        {x}.neg_()
        {x}.eq_({number})
        {x}.addcmul_({tensor}, {tensor})
        {x}.copy_({y})
        {x}.fill_({number})
        {x}.zero_()
        {x}.masked_fill_({mask}, {number})
        {x}.masked_scatter_({mask}, {like}.clone())
        {x}[...] = {y}
        {x}[{index}] = {number}
        {x}[{index}] = {z}
        {x}[{index}] += {number}
        {x}[{index}] *= {number}
        {x}[{index}].add_({number})
        {x}[{mask}] = {number}
        {x}[{mask}] += {number}
        {x}.view(-1)[0] = {number}
        {x}.as_strided({strided}).fill_({number})
        {x}.data = {like}
        {x}.data.mul_({number})
        {x}.detach().add_({number})
        {x}.set_({like}.detach())
        torch.add({x}, {number}, out={like})
    """,
    wide="""
        {x}[{index}][{index}] = {number}
        {x}[0], {x}[-1] = {x}[-1], {x}[0]
        {x}.select({dim}, 0).mul_({number})
        {x}.narrow({dim}, 0, 1).fill_({number})
        {x}.unbind({dim})[0].add_({number})
        {x}.transpose({dim}, {dim}).add_({y})
    """,
    discrete="""
        {x}.logical_not_()
    """,
    outside="""
        {x}.data = {z}
    """,
    apart_rows="""
        {x}[{ids}] = {number}
        {x}[{ids}] = {x}[{ids}]
        {x}[{ids}] += {number}
        {x}.index_fill_(0, torch.tensor([0]), {number})
        {x}.index_add_(0, torch.tensor([1, 1]), {x}[:2].clone())
        {x}.index_copy_(0, torch.tensor([1, 0]), {x}[:2].clone())
        {x}.put_(torch.tensor([0, -1]), {x}.reshape(-1)[:2].clone())
    """,
    row_major="""
        {x}[1:] = {x}[:-1]
        {x}[1:].add_({x}[:-1])
    """,
    matrix="""
        {x}.t()[0] = {number}
        {x}.diagonal().fill_({number})
        {x}.t().copy_({x}.t() * 2)
        {x}.T.mul_({number})
        {x}[:, 0].add_({number})
        {x}[:, ::2] = {number}
        {x}[:, 0] = {x}[:, -1]
    """,
    real="""
        {x}.clamp_(min=0)
        {x}.abs_()
        {x}.gt_({number})
        torch.maximum({x}, {tensor}, out={like})
    """,
    floating="""
        {x}.relu_()
        {x}.cumsum_(-1)
        {x}.div_({positive})
        {x}.sigmoid_()
        torch.nn.functional.relu({x}, inplace=True)
    """,
    complex="""
        {x}.real.mul_({number})
        {x}.imag = {number}
        torch.view_as_real({x}).zero_()
    """,
)

PASSES = Kind(
    3,
    "",
    tracked="""
        {scalar}.backward()
        {scalar}.backward()
        {scalar}.backward(retain_graph=True)
        {scalar}.backward(create_graph=True)
        ({scalar} * {scalar}).backward()
        {x}.backward(torch.ones_like({x}))
        {x}.retain_grad()
    """,
    base="""
        {x}.register_hook(lambda g: g * 2)
    """,
    leaf="""
        {x}.grad = None
        {x}.grad = torch.ones_like({x})
        torch.optim.SGD([{x}], lr=0.5).step()
        torch.optim.SGD([{x}], lr=0.5, momentum=0.5).step()
    """,
    with_grad="""
        {x}.grad.zero_()
        {x}.grad.mul_({number})
        {x}.grad[{index}] = {number}
    """,
    differentiable="""
        {x}.requires_grad_()
    """,
)

GRADIENTS = Kind(
    1,
    "t",
    tracked="""
        torch.autograd.grad({scalar}, {leaf}, allow_unused=True)[0]
        torch.autograd.grad({scalar}, {leaf}, retain_graph=True, allow_unused=True)[0]
        torch.autograd.grad({scalar}, {leaf}, create_graph=True, allow_unused=True)[0]
        torch.autograd.grad({scalar}, {x}, allow_unused=True)[0]
    """,
    with_grad="""
        {x}.grad
    """,
)

READS = Kind(
    1,
    "r",
    any="""
        {x}.tolist()
        bool({x}.any())
        len(str({x})) > 0
        torch.equal({x}, {z})
    """,
    real="""
        {x}.sum().item()
    """,
    single="""
        {x}.item()
    """,
)

KINDS = (VIEWS, VIEWS_IN_PLACE, OPERATORS, REDUCTIONS, WRITES, PASSES, GRADIENTS, READS, CREATION)
