// Products of bfloat16 matrices by the CPU's tile registers (AMX), or else its instruction for pairs of numbers: sums
// in float32, rounded once. Denormal numbers count as zero, as these instructions have it.
//
// A tile of b holds 16 pairs of its rows: the two numbers of a pair, for 16 columns, side by side. A tile of a holds 16
// of its rows, of 16 pairs. There are 32 x 32 sums at a time, over their whole length.
#include "product.h"

namespace weft::WEFT_VARIANT {
namespace {

typedef uint16_t Bf16;
constexpr int64_t kSide = 16;             // of a tile: rows, and pairs in a row
constexpr int64_t kTile = kSide * kSide;  // pairs
constexpr int64_t kSpan = 2 * kSide;      // rows and columns of the sums at once, and numbers in a row of a tile
constexpr Limits kLimits{256, 1024, kSpan, kSpan, 64, 4e6, 6.4e7};
using Indices = std::make_index_sequence<kSide>;

INLINE __mmask32 first(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << most<int64_t>(count, 0)) - 1u);
}
// As many of 16 numbers as there are, each in the lower half of a lane.
INLINE VecU load_numbers(const Bf16* from, int64_t count) {
  typedef Bf16 Numbers __attribute__((vector_size(32)));
  const __mmask16 there = static_cast<__mmask16>(first(least(count, kSide)));
  return __builtin_convertvector((Numbers)_mm256_maskz_loadu_epi16(there, from), VecU);
}

// One tile from a matrix whose rows are the tile's, of which `rows` and `numbers` in each are there.
INLINE void rows_of_pairs(const Bf16* from, int64_t ld, int64_t rows, int64_t numbers, VecF* tile) {
  UNROLL for (int r = 0; r < kSide; r++) tile[r] =
      r < rows ? (VecF)_mm512_maskz_loadu_epi16(first(numbers), from + r * ld) : VecF{};
}
// One tile from a matrix of which two rows make a row of pairs: `rows` of it, and `columns` of each, are there. What
// the next tile is made of is fetched: memory is slow where rows are far apart.
INLINE void pairs_of_rows(const Bf16* from, int64_t ld, int64_t rows, int64_t columns, VecF* tile) {
  const auto row = [&](int64_t r) {
    __builtin_prefetch(from + (r + kSpan) * ld);
    return load_numbers(from + r * ld, r < rows ? columns : 0);
  };
  UNROLL for (int r = 0; r < kSide; r++) tile[r] = (VecF)(row(2 * r) | row(2 * r + 1) << 16);
}

// 32 rows of a, or columns of b, of which `lines` are there, over all `k` numbers: the tiles of the first 16, one after
// the other, then those of the last 16. Each line lies in memory as it is, or else across it.
void pack(const Bf16* from, int64_t ld, bool across, bool turned, int64_t lines, int64_t k, VecF* to) {
  const int64_t half = ceil_div(k, kSpan) * kSide;
  for (int64_t p = 0; p < k; p += kSpan, to += kSide)
    for (int64_t i = 0; i < kSpan; i += kSide) {
      VecF* tile = to + i / kSide * half;
      if (across)
        pairs_of_rows(from + p * ld + i, ld, k - p, lines - i, tile);
      else
        rows_of_pairs(from + i * ld + p, ld, lines - i, k - p, tile);
      if (turned) turn<float>(tile, Indices{});
    }
}

// 16 rows of a, or 16 columns of b: tiles `step` bytes apart, whose rows are `stride` bytes apart.
struct Tiles {
  const void* p;
  int64_t stride, step;
  const char* at(int64_t tile) const { return static_cast<const char*>(p) + tile * step; }
};

// Between start() and stop(), multiply: sums (32, 32) = a b over a number of tiles.
#ifdef __AMX_BF16__
struct alignas(64) Shapes {
  uint8_t palette = 1, first = 0, unused[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr Shapes kShapes;
INLINE void start() { _tile_loadconfig(&kShapes); }
INLINE void stop() { _tile_release(); }

INLINE void multiply(int64_t tiles, const Tiles (&a)[2], const Tiles (&b)[2], float* sums) {
  __asm__ volatile("" ::: "memory");  // the compiler does not see that tiles are loaded from what was stored
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t t = 0; t < tiles; t++) {
    _tile_loadd(4, a[0].at(t), a[0].stride);
    _tile_loadd(6, b[0].at(t), b[0].stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b[1].at(t), b[1].stride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a[1].at(t), a[1].stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int64_t row = kSpan * sizeof(float);
  _tile_stored(0, sums, row);
  _tile_stored(1, sums + kSide, row);
  _tile_stored(2, sums + kSide * kSpan, row);
  _tile_stored(3, sums + kSide * kSpan + kSide, row);
}
#else
INLINE void start() {}
INLINE void stop() {}

INLINE void multiply(int64_t tiles, const Tiles (&a)[2], const Tiles (&b)[2], float* sums) {
  constexpr int64_t kRows = 8;  // with two vectors of columns
  for (int64_t i = 0; i < kSpan; i += kRows) {
    const Tiles& rows = a[i / kSide];
    __m512 acc[kRows][2] = {};
    for (int64_t t = 0; t < tiles; t++)
      for (int64_t q = 0; q < kSide; q++) {
        const __m512bh left = (__m512bh)load(reinterpret_cast<const float*>(b[0].at(t) + q * b[0].stride));
        const __m512bh right = (__m512bh)load(reinterpret_cast<const float*>(b[1].at(t) + q * b[1].stride));
        UNROLL for (int64_t r = 0; r < kRows; r++) {
          int pair;
          __builtin_memcpy(&pair, rows.at(t) + (i % kSide + r) * rows.stride + q * 4, 4);
          const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
          acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, left);
          acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, right);
        }
      }
    UNROLL for (int64_t r = 0; r < kRows; r++) {
      store(sums + (i + r) * kSpan, (VecF)acc[r][0]);
      store(sums + (i + r) * kSpan + kSide, (VecF)acc[r][1]);
    }
  }
}
#endif

// c (rows, columns) = sums + bias, rounded
void round(const float* sums, int64_t rows, int64_t columns, const Bf16* bias, Bf16* c, int64_t ldc) {
  VecF low{}, high{};
  if (bias) {
    low = (VecF)(load_numbers(bias, columns) << 16);
    high = (VecF)(load_numbers(bias + kSide, columns - kSide) << 16);
  }
  for (int64_t r = 0; r < rows; r++, sums += kSpan, c += ldc) {
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)(load(sums + kSide) + high), (__m512)(load(sums) + low));
    _mm512_mask_storeu_epi16(c, first(columns), (__m512i)both);
  }
}

}  // namespace

void product_bf16(const Pool& pool, const Product& x) {
  if (!x.batch || !x.m || !x.n) return;
  const Bf16 *a = static_cast<const Bf16*>(x.a), *b = static_cast<const Bf16*>(x.b);
  const Bf16* bias = static_cast<const Bf16*>(x.bias);
  Bf16* c = static_cast<Bf16*>(x.c);
  const int64_t tiles = ceil_div(x.k, kSpan);
  blocks(pool, x, kLimits, [&](int64_t at, int64_t i0, int64_t rows, int64_t j0, int64_t columns) {
    const Bf16* ai = a + at * (x.transpose_a ? x.k : x.m) * x.lda + i0 * (x.transpose_a ? 1 : x.lda);
    const Bf16* bi = b + at * (x.transpose_b ? x.n : x.k) * x.ldb + j0 * (x.transpose_b ? x.ldb : 1);
    const bool copied = x.transpose_a || x.k % kSpan || rows % kSpan;  // else tiles are loaded as they lie in memory
    VecF* columns_of_b = scratch_of<VecF>(0, 2 * tiles * kSide);
    VecF* rows_of_a = copied ? scratch_of<VecF>(1, ceil_div(rows, kSpan) * 2 * tiles * kSide) : nullptr;
    alignas(64) float sums[kSpan * kSpan];
    const auto packed = [&](const VecF* p) { return Tiles{p, 64, 64 * kSide}; };
    for (int64_t i = 0; copied && i < rows; i += kSpan)
      pack(ai + i * (x.transpose_a ? 1 : x.lda), x.lda, x.transpose_a, x.transpose_a, rows - i, x.k,
           rows_of_a + i * tiles);
    start();
    for (int64_t j = 0; j < columns; j += kSpan) {
      pack(bi + j * (x.transpose_b ? x.ldb : 1), x.ldb, !x.transpose_b, x.transpose_b, columns - j, x.k, columns_of_b);
      const Tiles right[2] = {packed(columns_of_b), packed(columns_of_b + kSide * tiles)};
      for (int64_t i = 0; i < rows; i += kSpan) {
        const auto left = [&](int64_t r) {
          return copied ? packed(rows_of_a + r * tiles) : Tiles{ai + r * x.lda, x.lda * 2, 2 * kSpan};
        };
        const Tiles both[2] = {left(i), left(i + kSide)};
        multiply(tiles, both, right, sums);
        round(sums, least(kSpan, rows - i), least(kSpan, columns - j), bias ? bias + j0 + j : nullptr,
              c + (at * x.m + i0 + i) * x.n + j0 + j, x.n);
      }
    }
    stop();
  });
}

}  // namespace weft::WEFT_VARIANT
