// All steps of an LSTM layer in one call. Tasks are parts of the batch, so that no step waits for another thread.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kRows = 16;    // sequences of a task
constexpr int64_t kDepth = 256;  // of a product: a strip of the weight stays in cache

// The weight b (k, n) as strips of columns, each contiguous: what multiply_packed reads.
void pack(int64_t k, int64_t n, const float* b, int64_t ldb, bool transposed, float* to) {
  for (int64_t j = 0, w; j < n; j += w) {
    w = strip_width<float>(n - j);
    float* strip = to + j * k;
    if (transposed)
      transpose(w, k, b + j * ldb, ldb, strip, w);
    else
      for (int64_t r = 0; r < k; r++) copy(strip + r * w, b + r * ldb + j, w);
  }
}
// c (m, n) = start + a (m, k) b, with b packed
void multiply_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, const float* start) {
  if (!k && !start)
    for (int64_t i = 0; i < m; i++) clear(c + i * n, n);
  for (int64_t j = 0, w; j < n; j += w) {
    w = strip_width<float>(n - j);
    for (int64_t p = 0; p < k; p += kDepth) {
      const float* from = p ? c : start;
      strip<float>(w, m, least(kDepth, k - p), {a + p, k, 1}, b + j * k + p * w, w, c + j, n, from ? from + j : from, n);
    }
  }
}

template <bool PART>
INLINE void cell(const float* z, const float* before, float* y, float* cell, float* gates, int64_t hidden, Mask m) {
  const VecF i = sigmoid(load<PART>(z, m)), f = sigmoid(load<PART>(z + hidden, m));
  const VecF g = tanh(load<PART>(z + 2 * hidden, m)), o = sigmoid(load<PART>(z + 3 * hidden, m));
  const VecF c = f * load<PART>(before, m) + i * g;
  store<PART>(gates, i, m), store<PART>(gates + hidden, f, m);
  store<PART>(gates + 2 * hidden, g, m), store<PART>(gates + 3 * hidden, o, m);
  store<PART>(cell, c, m), store<PART>(y, o * tanh(c), m);
}

// The gradients of a cell's four sums, and, in place of that of its cell, that of the cell before.
template <bool PART>
INLINE void cell_back(const float* gates, const float* cell, const float* before, const float* g_y, const float* dh,
                      float* dc, float* dz, int64_t hidden, Mask m) {
  const VecF i = load<PART>(gates, m), f = load<PART>(gates + hidden, m);
  const VecF g = load<PART>(gates + 2 * hidden, m), o = load<PART>(gates + 3 * hidden, m);
  const VecF t = tanh(load<PART>(cell, m)), d = load<PART>(dh, m) + load<PART>(g_y, m);
  const VecF c = load<PART>(dc, m) + d * o * (1.f - t * t);
  store<PART>(dz, c * g * i * (1.f - i), m);
  store<PART>(dz + hidden, c * load<PART>(before, m) * f * (1.f - f), m);
  store<PART>(dz + 2 * hidden, c * i * (1.f - g * g), m);
  store<PART>(dz + 3 * hidden, d * t * o * (1.f - o), m);
  store<PART>(dc, c * f, m);
}

}  // namespace

void lstm(const Pool& pool, const Lstm& x, const float* z, const float* h0, const float* c0, const float* weight,
          float* ys, float* cells, float* gates) {
  const int64_t hidden = x.hidden, wide = 4 * hidden, tail = hidden % kLanesF;
  float* packed = scratch_of<float>(2, wide * hidden);
  pack(hidden, wide, weight, hidden, true, packed);
  parallel(pool, ceil_div(x.batch, kRows), [&](int64_t part) {
    const int64_t first = part * kRows, rows = least(kRows, x.batch - first);
    const Mask mask(tail);
    const float *h = h0 + first * hidden, *c = c0 + first * hidden;
    for (int64_t s = 0; s < x.steps; s++) {
      const int64_t row = (x.reverse ? x.steps - 1 - s : s) * x.batch + first;
      float *sums = gates + row * wide, *new_h = ys + row * hidden, *new_c = cells + row * hidden;
      multiply_packed(rows, wide, hidden, h, packed, sums, z + row * wide);
      for (int64_t r = 0; r < rows; r++) {
        int64_t u = 0;
        for (; u + kLanesF <= hidden; u += kLanesF)
          cell<false>(sums + r * wide + u, c + r * hidden + u, new_h + r * hidden + u, new_c + r * hidden + u,
                      sums + r * wide + u, hidden, mask);
        if (tail)
          cell<true>(sums + r * wide + u, c + r * hidden + u, new_h + r * hidden + u, new_c + r * hidden + u,
                     sums + r * wide + u, hidden, mask);
      }
      h = new_h, c = new_c;
    }
  });
}

void lstm_backward(const Pool& pool, const Lstm& x, const float* g_ys, const float* g_h, const float* g_c,
                   const float* gates, const float* cells, const float* c0, const float* weight, float* dz,
                   float* dh0, float* dc0) {
  const int64_t hidden = x.hidden, wide = 4 * hidden, tail = hidden % kLanesF;
  float* packed = scratch_of<float>(2, wide * hidden);
  pack(wide, hidden, weight, hidden, false, packed);
  parallel(pool, ceil_div(x.batch, kRows), [&](int64_t part) {
    const int64_t first = part * kRows, rows = least(kRows, x.batch - first);
    const Mask mask(tail);
    float *dh = dh0 + first * hidden, *dc = dc0 + first * hidden;  // the results, and on the way what they add up to
    copy(dh, g_h + first * hidden, rows * hidden);
    copy(dc, g_c + first * hidden, rows * hidden);
    for (int64_t s = x.steps - 1; s >= 0; s--) {
      const int64_t step = x.reverse ? x.steps - 1 - s : s, row = step * x.batch + first;
      const int64_t row_before = (x.reverse ? step + 1 : step - 1) * x.batch + first;
      const float* before = s ? cells + row_before * hidden : c0 + first * hidden;
      float* d = dz + row * wide;
      for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r * hidden, in = row * hidden + at;
        int64_t u = 0;
        for (; u + kLanesF <= hidden; u += kLanesF)
          cell_back<false>(gates + (row + r) * wide + u, cells + in + u, before + at + u, g_ys + in + u, dh + at + u,
                           dc + at + u, d + r * wide + u, hidden, mask);
        if (tail)
          cell_back<true>(gates + (row + r) * wide + u, cells + in + u, before + at + u, g_ys + in + u, dh + at + u,
                          dc + at + u, d + r * wide + u, hidden, mask);
      }
      multiply_packed(rows, hidden, wide, d, packed, dh, nullptr);
    }
  });
}

}  // namespace weft::WEFT_VARIANT
