// The largest or the least numbers along a dim; NaN where there is one, which XLA's own kernels lose.
#include "vec.h"

namespace weft::WEFT_VARIANT {

// The first lanes of a vector of 16-bit numbers, for which AVX2 has no masks.
struct Few {
  int64_t lanes;
};
INLINE Vec<int16_t> load(const int16_t* p, Few few) {
  Vec<int16_t> v{};
  __builtin_memcpy(&v, p, static_cast<size_t>(few.lanes) * sizeof(int16_t));
  return v;
}
INLINE void store(int16_t* p, Vec<int16_t> v, Few few) {
  __builtin_memcpy(p, &v, static_cast<size_t>(few.lanes) * sizeof(int16_t));
}

namespace {

constexpr int64_t kTask = 1 << 15;   // elements of a task
constexpr int64_t kStrip = 1 << 11;  // columns whose results stay in the first cache
constexpr int kChains = 4;           // vectors of results side by side, since each step takes as long as four begin

template <bool LEAST, class V>
INLINE V better(V a, V b) {
  if constexpr (LEAST) return b < a ? b : a;
  return b > a ? b : a;
}
// The extreme of several vectors, lane by lane. A comparison with NaN is false, so `best` never becomes NaN: `odd` has
// the lanes in which there was one.
template <class T, bool LEAST>
struct Lanes {
  using Element = T;
  static constexpr bool kLeast = LEAST;
  using Odd = decltype(Vec<T>{} != Vec<T>{});
  Vec<T> best = splat<T>(LEAST ? __builtin_inf() : -__builtin_inf());
  Odd odd{};
  INLINE void add(Vec<T> x) {
    best = better<LEAST>(best, x);
    odd |= x != x;
  }
  INLINE Vec<T> result() const { return odd ? splat<T>(__builtin_nan("")) : best; }
  static INLINE T element(T best, bool odd) { return odd ? static_cast<T>(__builtin_nan("")) : best; }
};
// The same of numbers of 16 bits: sign and magnitude, by whose bits they are compared as integers. `kInfinity` has
// the bits of infinity, above which a magnitude is NaN.
template <int16_t kInfinity, bool LEAST>
struct HalfLanes {
  using Element = int16_t;
  static constexpr bool kLeast = LEAST;
  using V = Vec<int16_t>;
  static constexpr int16_t kNan = kInfinity | (kInfinity == 0x7c00 ? 0x200 : 0x40);
  V best = splat<int16_t>(LEAST ? 0x7fff : -0x8000);
  V odd{};
  INLINE void add(V x) {
    best = better<LEAST>(best, ordered(x));
    odd |= (x & int16_t{0x7fff}) > kInfinity;
  }
  INLINE V result() const { return odd ? splat(kNan) : ordered(best); }
  static INLINE int16_t element(int16_t best, bool odd) {
    return odd ? kNan : static_cast<int16_t>(best ^ ((best >> 15) & 0x7fff));
  }
  // Integers in the order of the numbers; and back.
  static INLINE V ordered(V x) { return x ^ ((x >> 15) & int16_t{0x7fff}); }
};

template <class L>
INLINE typename L::Element extreme(const L& lanes) {
  using T = typename L::Element;
  constexpr int w = kLanes<T>;
  T s[w];
  uint64_t marks[kBytes / 8], any = 0;
  store(s, lanes.best);
  __builtin_memcpy(marks, &lanes.odd, kBytes);
  UNROLL for (int i = 0; i < kBytes / 8; i++) any |= marks[i];
  UNROLL for (int half = w / 2; half; half /= 2) for (int i = 0; i < half; i++) s[i] =
      better<L::kLeast>(s[i], s[i + half]);
  return L::element(s[0], any != 0);
}

template <class T>
using Rest = std::conditional_t<sizeof(T) == 2, Few, Mask>;

// The extreme of numbers side by side. A last vector that is not whole begins earlier: to see a number twice is no
// harm.
template <class L, class T = typename L::Element>
T along(const T* x, int64_t count) {
  constexpr int64_t w = kLanes<T>;
  L chains[kChains];
  int64_t i = 0;
  for (; i + kChains * w <= count; i += kChains * w) {
    UNROLL for (int j = 0; j < kChains; j++) chains[j].add(load(x + i + j * w));
  }
  for (; i + w <= count; i += w) chains[0].add(load(x + i));
  if (i < count && count >= w) chains[1].add(load(x + count - w));
  for (; i < count && count < w; i++) chains[0].add(splat(x[i]));
  UNROLL for (int j = 1; j < kChains; j++) {
    chains[0].best = better<L::kLeast>(chains[0].best, chains[j].best);
    chains[0].odd |= chains[j].odd;
  }
  return extreme(chains[0]);
}

// y (width) = the extremes of the columns of x (count, width), whose rows are `stride` apart.
template <class L, class T = typename L::Element>
void across(const T* x, int64_t count, int64_t width, int64_t stride, T* y) {
  copy(y, x, width);
  for (int64_t r = 1; r < count; r += kChains) {
    const int64_t rows = least<int64_t>(kChains, count - r);
    const T* from = x + r * stride;
    const auto columns = [&](int64_t i, auto lanes) {
      const Vec<T> old = load(y + i, lanes);
      L column;
      column.add(old);
      if (rows == kChains) {
        UNROLL for (int64_t j = 0; j < kChains; j++) column.add(load(from + j * stride + i, lanes));
      } else {
        for (int64_t j = 0; j < rows; j++) column.add(load(from + j * stride + i, lanes));
      }
      store(y + i, column.result(), lanes);
    };
    int64_t i = 0;
    for (; i + kLanes<T> <= width; i += kLanes<T>) columns(i, AllLanes{});
    if (i < width) columns(i, Rest<T>{width - i});
  }
}

// What leads to one result is cut into pieces if it is long, and what is left of them is reduced again.
template <class L, class T = typename L::Element>
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
        to[t] = along<L>(from, count);
      else
        across<L>(from, count, width, s.inner, to + o * s.inner + column);
    }
  });
  if (rest == 1) return;
  for (int64_t o = 0; o < s.outer; o++) {
    const T* from = to + o * rest * s.inner;
    if (s.inner == 1)
      y[o] = along<L>(from, rest);
    else
      across<L>(from, rest, s.inner, s.inner, y + o * s.inner);
  }
}

}  // namespace

void extremes_f32(const Pool& pool, const Folded& s, bool least, const float* x, float* y) {
  (least ? reduce<Lanes<float, true>> : reduce<Lanes<float, false>>)(pool, s, x, y);
}
void extremes_f64(const Pool& pool, const Folded& s, bool least, const double* x, double* y) {
  (least ? reduce<Lanes<double, true>> : reduce<Lanes<double, false>>)(pool, s, x, y);
}
void extremes_f16(const Pool& pool, const Folded& s, bool least, const int16_t* x, int16_t* y) {
  (least ? reduce<HalfLanes<0x7c00, true>> : reduce<HalfLanes<0x7c00, false>>)(pool, s, x, y);
}
void extremes_bf16(const Pool& pool, const Folded& s, bool least, const int16_t* x, int16_t* y) {
  (least ? reduce<HalfLanes<0x7f80, true>> : reduce<HalfLanes<0x7f80, false>>)(pool, s, x, y);
}

}  // namespace weft::WEFT_VARIANT
