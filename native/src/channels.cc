// Sums over all rows of channels, and batch normalisation by them: an image with its channels last is a row for each
// pixel. Each pass over memory is cut into a fixed number of parts, so that sums do not depend on the number of threads.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kParts = 16;
constexpr int64_t kBlock = 4096;  // elements: what is read twice lies in first-level cache

// f(first row, rows, part) for each part of the rows
template <class F>
void for_parts(const Pool& pool, int64_t rows, const F& f) {
  const int64_t each = ceil_div(rows, kParts);
  parallel(pool, kParts, [&](int64_t part) {
    const int64_t first = least(rows, part * each);
    f(first, least(each, rows - first), part);
  });
}
// f(first row, rows) for blocks of rows that fit into cache
template <class F>
INLINE void for_blocks(int64_t first, int64_t rows, int64_t channels, const F& f) {
  const int64_t each = most<int64_t>(8, kBlock / channels);
  for (int64_t r = 0; r < rows; r += each) f(first + r, least(each, rows - r));
}
// f(first channel, mask, whether the vector is a part) for the vectors of a row
template <class F>
INLINE void for_vectors(int64_t channels, const F& f) {
  const Mask mask(channels % kLanesF);
  int64_t c = 0;
  for (; c + kLanesF <= channels; c += kLanesF) f(c, mask, std::false_type{});
  if (c < channels) f(c, mask, std::true_type{});
}
// The sum of f(row) over rows, four at a time: one after the other would wait for each addition.
template <class F>
INLINE VecF sum_rows(int64_t rows, const F& f) {
  VecF s[4] = {};
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    UNROLL for (int i = 0; i < 4; i++) s[i] += f(r + i);
  }
  for (; r < rows; r++) s[0] += f(r);
  return (s[0] + s[1]) + (s[2] + s[3]);
}

// Joins the mean and the squared deviations of `more` rows with those of the `before` rows so far (Chan, Golub and
// LeVeque, 1979).
struct Moments {
  VecF mean, squares;
};
INLINE Moments joined(Moments a, int64_t before, Moments b, int64_t more) {
  const float n = static_cast<float>(before + more), share = static_cast<float>(more) / n;
  const VecF d = b.mean - a.mean;
  return {a.mean + d * share, a.squares + b.squares + d * d * (static_cast<float>(before) * share)};
}

}  // namespace

void channel_sums(const Pool& pool, int64_t all_rows, int64_t channels, const float* x, float* sums) {
  float* parts = scratch_of<float>(0, kParts * channels);
  for_parts(pool, all_rows, [&](int64_t first, int64_t rows, int64_t part) {
    float* to = parts + part * channels;
    clear(to, channels);
    for_blocks(first, rows, channels, [&](int64_t at, int64_t count) {
      for_vectors(channels, [&](int64_t c, Mask m, auto is_part) {
        constexpr bool PART = decltype(is_part)::value;
        const float* in = x + at * channels + c;
        const VecF sum = sum_rows(count, [&](int64_t r) { return load<PART>(in + r * channels, m); });
        store<PART>(to + c, load<PART>(to + c, m) + sum, m);
      });
    });
  });
  for_vectors(channels, [&](int64_t c, Mask m, auto is_part) {
    constexpr bool PART = decltype(is_part)::value;
    VecF sum{};
    for (int64_t part = 0; part < kParts; part++) sum += load<PART>(parts + part * channels + c, m);
    store<PART>(sums + c, sum, m);
  });
}

void batch_norm(const Pool& pool, const BatchNorm& s, const float* x, const float* weight, const float* bias, float* y,
                float* mean, float* variance, float* rstd) {
  const int64_t C = s.channels;
  float* parts = scratch_of<float>(0, kParts * 2 * C);
  for_parts(pool, s.rows, [&](int64_t first, int64_t rows, int64_t part) {
    float *means = parts + part * 2 * C, *squares = means + C;
    clear(means, 2 * C);
    int64_t before = 0;
    for_blocks(first, rows, C, [&](int64_t at, int64_t count) {
      for_vectors(C, [&](int64_t c, Mask m, auto is_part) {
        constexpr bool PART = decltype(is_part)::value;
        const float* in = x + at * C + c;
        const VecF here = sum_rows(count, [&](int64_t r) { return load<PART>(in + r * C, m); }) *
                          (1.f / static_cast<float>(count));
        const VecF deviations = sum_rows(count, [&](int64_t r) {
          const VecF d = load<PART>(in + r * C, m) - here;
          return d * d;
        });
        const Moments all = joined({load<PART>(means + c, m), load<PART>(squares + c, m)}, before,
                                   {here, deviations}, count);
        store<PART>(means + c, all.mean, m), store<PART>(squares + c, all.squares, m);
      });
      before += count;
    });
  });
  const int64_t each = ceil_div(s.rows, kParts);
  for_vectors(C, [&](int64_t c, Mask m, auto is_part) {
    constexpr bool PART = decltype(is_part)::value;
    Moments all{};
    for (int64_t part = 0; part * each < s.rows; part++) {
      const float* from = parts + part * 2 * C + c;
      all = joined(all, part * each, {load<PART>(from, m), load<PART>(from + C, m)},
                   least(each, s.rows - part * each));
    }
    store<PART>(mean + c, all.mean, m);
    store<PART>(variance + c, all.squares * (1.f / static_cast<float>(s.rows)), m);
  });
  for (int64_t c = 0; c < C; c++) rstd[c] = 1.f / std::sqrt(variance[c] + s.eps);
  for_parts(pool, s.rows, [&](int64_t first, int64_t rows, int64_t) {
    for (int64_t r = first; r < first + rows; r++)
      for_vectors(C, [&](int64_t c, Mask m, auto is_part) {
        constexpr bool PART = decltype(is_part)::value;
        const VecF scale = load<PART>(rstd + c, m) * load<PART>(weight + c, m);
        const VecF centred = load<PART>(x + r * C + c, m) - load<PART>(mean + c, m);
        store<PART>(y + r * C + c, centred * scale + load<PART>(bias + c, m), m);
      });
  });
}

void batch_norm_backward(const Pool& pool, const BatchNorm& s, const float* g, const float* x, const float* mean,
                         const float* rstd, const float* weight, float* dx, float* dweight, float* dbias) {
  const int64_t C = s.channels;
  float* parts = scratch_of<float>(0, kParts * 2 * C);
  for_parts(pool, s.rows, [&](int64_t first, int64_t rows, int64_t part) {
    float *sums = parts + part * 2 * C, *along = sums + C;
    clear(sums, 2 * C);
    for_blocks(first, rows, C, [&](int64_t at, int64_t count) {
      for_vectors(C, [&](int64_t c, Mask m, auto is_part) {
        constexpr bool PART = decltype(is_part)::value;
        const float *gs = g + at * C + c, *in = x + at * C + c;
        const VecF centre = load<PART>(mean + c, m);
        const VecF sum = sum_rows(count, [&](int64_t r) { return load<PART>(gs + r * C, m); });
        const VecF product = sum_rows(
            count, [&](int64_t r) { return load<PART>(gs + r * C, m) * (load<PART>(in + r * C, m) - centre); });
        store<PART>(sums + c, load<PART>(sums + c, m) + sum, m);
        store<PART>(along + c, load<PART>(along + c, m) + product, m);
      });
    });
  });
  // The gradient is scale * (g - mean of g - (x - mean) * tilt).
  float *scale = scratch_of<float>(1, 3 * C), *offset = scale + C, *tilt = offset + C;
  const float share = 1.f / static_cast<float>(s.rows);
  for_vectors(C, [&](int64_t c, Mask m, auto is_part) {
    constexpr bool PART = decltype(is_part)::value;
    VecF sum{}, product{};
    for (int64_t part = 0; part < kParts; part++) {
      sum += load<PART>(parts + part * 2 * C + c, m);
      product += load<PART>(parts + part * 2 * C + C + c, m);
    }
    const VecF r = load<PART>(rstd + c, m);
    store<PART>(dbias + c, sum, m), store<PART>(dweight + c, product * r, m);
    store<PART>(scale + c, r * load<PART>(weight + c, m), m);
    store<PART>(offset + c, sum * share, m), store<PART>(tilt + c, product * r * r * share, m);
  });
  for_parts(pool, s.rows, [&](int64_t first, int64_t rows, int64_t) {
    for (int64_t r = first; r < first + rows; r++)
      for_vectors(C, [&](int64_t c, Mask m, auto is_part) {
        constexpr bool PART = decltype(is_part)::value;
        const VecF centred = load<PART>(x + r * C + c, m) - load<PART>(mean + c, m);
        const VecF rest = load<PART>(g + r * C + c, m) - load<PART>(offset + c, m) - centred * load<PART>(tilt + c, m);
        store<PART>(dx + r * C + c, rest * load<PART>(scale + c, m), m);
      });
  });
}

}  // namespace weft::WEFT_VARIANT
