// The largest or the least numbers along a dim; NaN where there is one, which XLA's own kernels lose.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kTask = 1 << 15;   // elements of a task
constexpr int64_t kStrip = 1 << 11;  // columns whose results stay in the first cache
constexpr int kChains = 4;           // vectors of results side by side, since each step takes as long as four begin

template <bool LEAST, class V>
INLINE V better(V a, V b) {
  if constexpr (LEAST) return b < a ? b : a;
  return b > a ? b : a;
}
// A comparison with NaN is false, so `best` never becomes NaN: `odd` has the lanes in which there was one.
template <class T, bool LEAST>
struct Lanes {
  using Odd = decltype(Vec<T>{} != Vec<T>{});
  Vec<T> best = splat<T>(LEAST ? __builtin_inf() : -__builtin_inf());
  Odd odd{};
  INLINE void add(Vec<T> x) {
    best = better<LEAST>(best, x);
    odd |= x != x;
  }
  INLINE Vec<T> result() const { return odd ? splat<T>(__builtin_nan("")) : best; }
  INLINE T extreme() const {
    T s[kLanes<T>];
    uint64_t marks[kBytes / 8], any = 0;
    store(s, best);
    __builtin_memcpy(marks, &odd, kBytes);
    UNROLL for (int i = 0; i < kBytes / 8; i++) any |= marks[i];
    UNROLL for (int half = kLanes<T> / 2; half; half /= 2) for (int i = 0; i < half; i++) s[i] =
        better<LEAST>(s[i], s[i + half]);
    return any ? static_cast<T>(__builtin_nan("")) : s[0];
  }
};

// The extreme of numbers side by side. A last vector that is not whole begins earlier: to see a number twice is no
// harm.
template <class T, bool LEAST>
T along(const T* x, int64_t count) {
  constexpr int64_t w = kLanes<T>;
  Lanes<T, LEAST> chains[kChains];
  int64_t i = 0;
  for (; i + kChains * w <= count; i += kChains * w) {
    UNROLL for (int j = 0; j < kChains; j++) chains[j].add(load(x + i + j * w));
  }
  for (; i + w <= count; i += w) chains[0].add(load(x + i));
  if (i < count && count >= w) chains[1].add(load(x + count - w));
  for (; i < count && count < w; i++) chains[0].add(splat(x[i]));
  UNROLL for (int j = 1; j < kChains; j++) {
    chains[0].best = better<LEAST>(chains[0].best, chains[j].best);
    chains[0].odd |= chains[j].odd;
  }
  return chains[0].extreme();
}

// y (width) = the extremes of the columns of x (count, width), whose rows are `stride` apart.
template <class T, bool LEAST>
void across(const T* x, int64_t count, int64_t width, int64_t stride, T* y) {
  copy(y, x, width);
  for (int64_t r = 1; r < count; r += kChains) {
    const int64_t rows = least<int64_t>(kChains, count - r);
    const T* from = x + r * stride;
    each_vector<T>(width, [&](int64_t i, auto lanes) {
      const Vec<T> old = load(y + i, lanes);
      Lanes<T, LEAST> column;
      column.add(old);
      if (rows == kChains) {
        UNROLL for (int64_t j = 0; j < kChains; j++) column.add(load(from + j * stride + i, lanes));
      } else {
        for (int64_t j = 0; j < rows; j++) column.add(load(from + j * stride + i, lanes));
      }
      store(y + i, column.result(), lanes);
    });
  }
}

// What leads to one result is cut into pieces if it is long, and what is left of them is reduced again.
template <class T, bool LEAST>
void reduce(const Pool& pool, const Folded& s, const T* x, T* y) {
  const int64_t strip = least(s.inner, kStrip), strips = ceil_div(s.inner, strip);
  const int64_t pieces = most<int64_t>(1, s.count * strip / kTask), length = ceil_div(s.count, pieces);
  const int64_t rest = ceil_div(s.count, length);
  T* to = rest == 1 ? y : scratch_of<T>(0, s.outer * rest * s.inner);
  const int64_t each = s.outer * rest * strips, block = most<int64_t>(1, kTask / (length * strip));
  parallel(pool, ceil_div(each, block), [&](int64_t task) {
    for (int64_t t = task * block; t < least(each, (task + 1) * block); t++) {
      const int64_t o = t / strips, first = o % rest * length, column = t % strips * strip;
      const int64_t count = least(length, s.count - first), width = least(strip, s.inner - column);
      const T* from = x + (o / rest * s.count + first) * s.inner + column;
      if (s.inner == 1)
        to[t] = along<T, LEAST>(from, count);
      else
        across<T, LEAST>(from, count, width, s.inner, to + o * s.inner + column);
    }
  });
  if (rest == 1) return;
  for (int64_t o = 0; o < s.outer; o++) {
    const T* from = to + o * rest * s.inner;
    if (s.inner == 1)
      y[o] = along<T, LEAST>(from, rest);
    else
      across<T, LEAST>(from, rest, s.inner, s.inner, y + o * s.inner);
  }
}

}  // namespace

void extremes_f32(const Pool& pool, const Folded& s, bool least, const float* x, float* y) {
  (least ? reduce<float, true> : reduce<float, false>)(pool, s, x, y);
}
void extremes_f64(const Pool& pool, const Folded& s, bool least, const double* x, double* y) {
  (least ? reduce<double, true> : reduce<double, false>)(pool, s, x, y);
}

}  // namespace weft::WEFT_VARIANT
