"""Products of matrices of 8-bit numbers, with scales, and by groups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from weft._base.dtype import DType, bfloat16, float32, int32
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError, UnsupportedCallError
from weft.ops._table import NO_METHOD, Public


class ScalingType(IntEnum):
    """What a scale belongs to: the whole matrix, a row, or a block of it."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(IntEnum):
    """In which order the scales of blocks lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


@composite(public=NO_METHOD)
def _int_mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of matrices of int8 numbers, in int32."""
    return op.matmul(op.to_dtype(input, int32), op.to_dtype(mat2, int32))


@composite(public=NO_METHOD)
def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of matrices of 8-bit floats, (m, k) and (k, n), each multiplied by its scale, plus `bias`.

    A scale is one number, or one for each row of `input`, (m, 1), or each column of `mat2`, (1, n). It is computed in
    float32, and given as `out_dtype`, by default the type of `input`.
    """
    del use_fast_accum
    sides = (("scale_a", scale_a, [input.shape[0], 1]), ("scale_b", scale_b, [1, mat2.shape[1]]))
    for name, scale, shape in sides:
        if scale.numel() != 1 and list(scale.shape) != shape:
            raise ShapeError(f"_scaled_mm: {name} must be one number or of size {shape}, got {list(scale.shape)}")
    # A scale of a row or of a column is a factor of the product's, too, so the matrices need not be scaled before.
    product = op.matmul(op.to_dtype(input, float32), op.to_dtype(mat2, float32)) * scale_a * scale_b
    if bias is not None:
        product = product + op.to_dtype(bias, float32)
    if scale_result is not None:
        product = product * scale_result
    return op.to_dtype(product, out_dtype or input.dtype)


_SCALED = (ScalingType.TensorWise, ScalingType.RowWise)


@composite(public=Public(module="nn.functional"))
def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: ScalingType | list[ScalingType],
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: ScalingType | list[ScalingType],
    swizzle_a: SwizzleType | list[SwizzleType] | None = None,
    swizzle_b: SwizzleType | list[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: DType | None = bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of matrices of 8-bit floats, multiplied by their scales: of the matrix, or of each row or column."""
    del swizzle_a, swizzle_b  # the order of scales of blocks, which are refused below
    scales: list[Tensor] = []
    for name, scale, recipe in (
        ("scale_recipe_a", scale_a, scale_recipe_a),
        ("scale_recipe_b", scale_b, scale_recipe_b),
    ):
        kinds = recipe if isinstance(recipe, list) else [recipe]
        if len(kinds) != 1 or kinds[0] not in _SCALED or contraction_dim:
            raise UnsupportedCallError(
                f"scaled_mm: {name} must be ScalingType.TensorWise or ScalingType.RowWise, without contraction_dim, "
                f"got {kinds}; multiply the blocks by their scales in float32, and use matmul"
            )
        scales.append(scale[0] if isinstance(scale, list) else scale)
    return _scaled_mm(mat_a, mat_b, *scales, bias, None, output_dtype, use_fast_accum)


@composite(public=Public(module="nn.functional"))
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """Products of matrices by groups, of which `offs` says where each ends; it is read, so this waits for it.

    Rows of a matrix (m, k) in groups by matrices (groups, k, n), as experts compute, give (m, n), with zeros where no
    group is. Matrices (groups, m, k) by columns of (k, n) give (m, n). Columns of (m, k) by rows of (k, n) give
    (groups, m, n). Without groups, `offs=None`, it is `bmm`.
    """
    if bias is not None:
        raise UnsupportedCallError("grouped_mm: bias is not supported; add it to the result")
    if (offs is None) != (mat_a.ndim == mat_b.ndim == 3):
        raise ShapeError("grouped_mm: offs is for operands of which one at least has two dims, and must be given then")
    if offs is None:
        product = op.bmm(mat_a, mat_b)
    else:
        # Read, since the sizes of the groups are those of the products: slices of computed sizes cannot be recorded.
        ends: list[int] = offs.tolist()
        groups = list(enumerate(zip([0, *ends], ends, strict=False)))
        if mat_a.ndim == 2 and mat_b.ndim == 2:
            product = op.stack([op.matmul(mat_a[:, a:b], mat_b[a:b]) for _, (a, b) in groups], 0)
        elif mat_a.ndim == 2:
            rest = op.zeros((mat_a.shape[0] - ends[-1], mat_b.shape[2]), dtype=mat_a.dtype, device=mat_a.device)
            product = op.cat([*(op.matmul(mat_a[a:b], mat_b[at]) for at, (a, b) in groups), rest], 0)
        else:
            rest = op.zeros((mat_a.shape[1], mat_b.shape[1] - ends[-1]), dtype=mat_a.dtype, device=mat_a.device)
            product = op.cat([*(op.matmul(mat_a[at], mat_b[:, a:b]) for at, (a, b) in groups), rest], 1)
    return op.to_dtype(product, out_dtype or mat_a.dtype)


@composite(public=NO_METHOD)
def _grouped_mm(
    input: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """`torch.nn.functional.grouped_mm`."""
    return grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype)
