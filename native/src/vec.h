// Vectors of one variant's width, the micro-kernel, and what all kernels share. Everything is in the variant's
// namespace, and nothing of the standard library has code here: see kernels.h.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.h"

#define INLINE inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

namespace weft::WEFT_VARIANT {

template <class N>
constexpr INLINE N least(N a, N b) {
  return a < b ? a : b;
}
template <class N>
constexpr INLINE N most(N a, N b) {
  return a < b ? b : a;
}
constexpr INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// --- vectors --------------------------------------------------------------------------------------------------

#ifdef __AVX512F__
constexpr int kBytes = 64;
constexpr int kMostVectors = 3;  // of a micro-kernel's row: 8 x 3 of the 32 registers add up
#else
constexpr int kBytes = 32;
constexpr int kMostVectors = 2;  // 6 x 2 of the 16 registers
#endif

template <class T>
struct VecOf {
  typedef T type __attribute__((vector_size(kBytes)));
};
template <class T>
using Vec = typename VecOf<T>::type;
using VecF = Vec<float>;
using VecU = Vec<uint32_t>;
template <class T>
constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));
constexpr int kLanesF = kLanes<float>;

template <class T>
INLINE Vec<T> splat(T x) {
  return x - Vec<T>{};
}
template <class T>
INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, kBytes);
  return v;
}
template <class T>
INLINE void store(T* p, Vec<T> v) {
  __builtin_memcpy(p, &v, kBytes);
}

// The first lanes of a vector. No other lane's memory is touched.
#ifdef __AVX512F__
struct Mask {
  __mmask16 bits;
  explicit INLINE Mask(int64_t lanes) : bits(static_cast<__mmask16>((1u << lanes) - 1u)) {}
};
INLINE Vec<float> load_part(const float* p, Mask m) { return (Vec<float>)_mm512_maskz_loadu_ps(m.bits, p); }
INLINE void store_part(float* p, Vec<float> v, Mask m) { _mm512_mask_storeu_ps(p, m.bits, (__m512)v); }
INLINE Vec<double> load_part(const double* p, Mask m) {
  return (Vec<double>)_mm512_maskz_loadu_pd(static_cast<__mmask8>(m.bits), p);
}
INLINE void store_part(double* p, Vec<double> v, Mask m) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>(m.bits), (__m512d)v);
}
#else
struct Mask {
  int64_t lanes;
  explicit INLINE Mask(int64_t lanes) : lanes(lanes) {}
};
INLINE __m256i mask32(Mask m) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(m.lanes)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE __m256i mask64(Mask m) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(m.lanes), _mm256_setr_epi64x(0, 1, 2, 3));
}
INLINE Vec<float> load_part(const float* p, Mask m) { return (Vec<float>)_mm256_maskload_ps(p, mask32(m)); }
INLINE void store_part(float* p, Vec<float> v, Mask m) { _mm256_maskstore_ps(p, mask32(m), (__m256)v); }
INLINE Vec<double> load_part(const double* p, Mask m) { return (Vec<double>)_mm256_maskload_pd(p, mask64(m)); }
INLINE void store_part(double* p, Vec<double> v, Mask m) { _mm256_maskstore_pd(p, mask64(m), (__m256d)v); }
#endif

template <bool PART, class T>
INLINE Vec<T> load(const T* p, Mask m) {
  if constexpr (PART) return load_part(p, m);
  return load(p);
}
template <bool PART, class T>
INLINE void store(T* p, Vec<T> v, Mask m) {
  if constexpr (PART)
    store_part(p, v, m);
  else
    store(p, v);
}

// The lanes of a vector that is whole; in place of a Mask, where a function is for both.
struct AllLanes {};
template <class T>
INLINE Vec<T> load(const T* p, AllLanes) {
  return load(p);
}
template <class T>
INLINE Vec<T> load(const T* p, Mask m) {
  return load_part(p, m);
}
template <class T>
INLINE void store(T* p, Vec<T> v, AllLanes) {
  store(p, v);
}
template <class T>
INLINE void store(T* p, Vec<T> v, Mask m) {
  store_part(p, v, m);
}
// `v` with `other` in all lanes but these.
INLINE VecF only(VecF v, AllLanes, float) { return v; }
INLINE VecF only(VecF v, Mask m, float other) {
#ifdef __AVX512F__
  return (VecF)_mm512_mask_blend_ps(m.bits, _mm512_set1_ps(other), (__m512)v);
#else
  return (VecF)_mm256_blendv_ps(_mm256_set1_ps(other), (__m256)v, (__m256)mask32(m));
#endif
}
// f(i, lanes) for each vector of `count` elements, which starts at the i-th.
template <class T, class F>
INLINE void each_vector(int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) f(i, AllLanes{});
  if (i < count) f(i, Mask(count - i));
}

INLINE float sum(VecF v) {  // by halves: a fixed order
  float s[kLanesF];
  store(s, v);
  for (int half = kLanesF / 2; half; half /= 2)
    for (int i = 0; i < half; i++) s[i] += s[i + half];
  return s[0];
}
// The sum of f(i, lanes) over the vectors of `count` elements; lanes behind them do not count. Four sums go side by
// side, since each addition takes as long as four begin.
template <class F>
INLINE float sum_each(int64_t count, const F& f) {
  VecF sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanesF <= count; i += 4 * kLanesF) {
    UNROLL for (int j = 0; j < 4; j++) sums[j] += f(i + j * kLanesF, AllLanes{});
  }
  for (; i + kLanesF <= count; i += kLanesF) sums[0] += f(i, AllLanes{});
  if (i < count) sums[1] += only(f(i, Mask(count - i)), Mask(count - i), 0.f);
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}
INLINE float maximum(VecF v) {
  float s[kLanesF];
  store(s, v);
  float m = s[0];
  for (int i = 1; i < kLanesF; i++) m = s[i] > m ? s[i] : m;
  return m;
}

INLINE VecF sqrt(VecF x) {
#ifdef __AVX512F__
  return (VecF)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);  // g++ 12 warns of what _mm512_sqrt_ps reads
#else
  return (VecF)_mm256_sqrt_ps((__m256)x);
#endif
}
// e^y = 2^n p, 2 ulp (Cephes' polynomial), for y between bounds.
struct Exponential {
  VecF p;
  VecU n;
};
INLINE Exponential exponential(VecF x, float least, float most) {
  const VecF lowest = splat(least), highest = splat(most), magic = splat(12582912.f);  // 1.5 * 2^23: rounds
  VecF y = x < lowest ? lowest : x;
  y = y > highest ? highest : y;
  const VecF shifted = y * 1.44269504f + magic, n = shifted - magic;
  const VecF r = y - n * 0.693359375f + n * 2.12194440e-4f;
  VecF p = splat(1.9875691500e-4f) * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {p * r * r + r + 1.f, (VecU)shifted - (VecU)magic};
}
// e^x. 0 below the normal numbers, so that -inf gives 0; NaN stays NaN.
INLINE VecF exp(VecF x) {
  constexpr float lowest = -87.33f, highest = 88.3f;
  const Exponential e = exponential(x, lowest, highest);
  const VecF inside = e.p * (VecF)((e.n + 127u) << 23);
  const VecF bounded = x > highest ? splat(__builtin_inff()) : inside;
  return x < lowest ? VecF{} : bounded;
}
// e^x for x up to 88, 2 ulp of what x log2(e) rounds to: cheaper than `exp`. 0 below -87.7; NaN stays NaN.
INLINE VecF exp_below(VecF x) {
  const VecF lowest = splat(-88.f), magic = splat(12582912.f);  // 1.5 * 2^23: rounds
  const VecF y = x < lowest ? lowest : x, shifted = y * 1.44269504f + magic, n = shifted - magic;
  const VecF r = y * 1.44269504f - n;
  VecF p = splat(1.326472707e-3f) * r + 9.671512649e-3f;
  p = p * r + 5.550733744e-2f;
  p = p * r + 2.402224209e-1f;
  p = p * r + 6.931469776e-1f;
  p = p * r + 1.f;
  const VecU power = ((VecU)shifted - (VecU)magic + 127u) << 23;
  return p * (VecF)power;
}
// A rational function in x, a few ulp (Eigen's coefficients); NaN stays NaN.
INLINE VecF tanh(VecF x) {
  const VecF bound = splat(7.90531110763549805f);
  VecF y = x > bound ? bound : x;
  y = y < -bound ? -bound : y;
  const VecF s = y * y;
  VecF p = splat(-2.76076847742355e-16f) * s + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  VecF q = splat(1.19825839466702e-06f) * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return y * p / q;
}
INLINE VecF sigmoid(VecF x) { return 0.5f * tanh(0.5f * x) + 0.5f; }

// --- the micro-kernel -----------------------------------------------------------------------------------------

// c (ROWS, VECTORS) += a (ROWS, k) b (k, VECTORS): each row of `a` at its own address, with columns `cs` apart. The
// column of `a` that is AHEAD of the one in use is fetched: memory is slow where columns are far apart.
template <class T, int ROWS, int VECTORS, bool PART, int AHEAD = 0>
INLINE void multiply(Vec<T> (&c)[ROWS][VECTORS], int64_t k, const T* const (&a)[ROWS], int64_t cs, const T* b,
                     int64_t ldb, Mask mask) {
  static_assert(!PART || VECTORS == 1);
  for (int64_t p = 0, at = 0; p < k; p++, at += cs, b += ldb) {
    // One index for all rows: with a pointer for each, g++ has been seen to keep a vector of `b` in memory.
    if constexpr (ROWS <= 8) __asm__("" : "+r"(at));
    Vec<T> row[VECTORS];
    UNROLL for (int j = 0; j < VECTORS; j++) row[j] = load<PART>(b + j * kLanes<T>, mask);
    if constexpr (AHEAD > 0) __builtin_prefetch(a[0] + at + AHEAD * cs);
    UNROLL for (int i = 0; i < ROWS; i++) {
      const Vec<T> x = splat(a[i][at]);
      UNROLL for (int j = 0; j < VECTORS; j++) c[i][j] += x * row[j];
    }
  }
}

constexpr int rows_for(int vectors) { return vectors == 2 && kBytes == 32 ? 6 : 8; }

// The columns of the next strip of a product of which `rest` columns are left: 3, 2 or 1 vectors, or a part of one.
template <class T>
INLINE int64_t strip_width(int64_t rest) {
  constexpr int64_t w = kLanes<T>;
  if (kMostVectors == 3 && rest >= 3 * w && rest != 4 * w) return 3 * w;
  return rest >= 2 * w ? 2 * w : least(rest, w);
}

// One operand of a product in memory: element (i, j) is at p[i * rs + j * cs].
template <class T>
struct View {
  const T* p;
  int64_t rs, cs;
};

struct NoPrefetch {
  INLINE void operator()(int64_t, int64_t) const {}
};

template <class T, int ROWS, int VECTORS, bool PART, int AHEAD, class F>
void strip_rows(int64_t first, int64_t m, int64_t k, View<T> a, const T* b, int64_t ldb, T* c, int64_t ldc,
                const T* start, int64_t lds, Mask mask, const F& prefetch) {
  int64_t i = first;
  for (; i + ROWS <= m; i += ROWS) {
    prefetch(i, ROWS);
    Vec<T> acc[ROWS][VECTORS];
    const T* rows[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) {
      rows[r] = a.p + (i + r) * a.rs;
      UNROLL for (int j = 0; j < VECTORS; j++) acc[r][j] =
          start ? load<PART>(start + (i + r) * lds + j * kLanes<T>, mask) : Vec<T>{};
    }
    multiply<T, ROWS, VECTORS, PART, AHEAD>(acc, k, rows, a.cs, b, ldb, mask);
    UNROLL for (int r = 0; r < ROWS; r++) {
      UNROLL for (int j = 0; j < VECTORS; j++) store<PART>(c + (i + r) * ldc + j * kLanes<T>, acc[r][j], mask);
    }
  }
  if constexpr (ROWS > 1) {
    if (i < m)
      strip_rows<T, (ROWS + 1) / 2, VECTORS, PART, AHEAD>(i, m, k, a, b, ldb, c, ldc, start, lds, mask, prefetch);
  }
}

// One strip of columns, `width` as strip_width says: c (m, width) = start + a (m, k) b (k, width). `start` is null for
// zeros, `c` itself to add to it, or a row with lds = 0. Before each tile, prefetch(first row, rows) may fetch what is
// not in cache.
template <class T, int AHEAD = 0, class F = NoPrefetch>
void strip(int64_t width, int64_t m, int64_t k, View<T> a, const T* b, int64_t ldb, T* c, int64_t ldc, const T* start,
           int64_t lds, const F& prefetch = {}) {
  constexpr int64_t w = kLanes<T>;
  const Mask mask(width < w ? width : 0);
  if (width < w)
    strip_rows<T, rows_for(1), 1, true, AHEAD>(0, m, k, a, b, ldb, c, ldc, start, lds, mask, prefetch);
  else if (width == w)
    strip_rows<T, rows_for(1), 1, false, AHEAD>(0, m, k, a, b, ldb, c, ldc, start, lds, mask, prefetch);
  else if (width == 2 * w)
    strip_rows<T, rows_for(2), 2, false, AHEAD>(0, m, k, a, b, ldb, c, ldc, start, lds, mask, prefetch);
  else if constexpr (kMostVectors == 3)
    strip_rows<T, rows_for(3), 3, false, AHEAD>(0, m, k, a, b, ldb, c, ldc, start, lds, mask, prefetch);
}

// c (m, n) = start + a (m, k) b (k, n) on this thread, with `b` as it lies in memory: for what is in cache.
template <class T>
void multiply_here(int64_t m, int64_t n, int64_t k, View<T> a, const T* b, int64_t ldb, T* c, int64_t ldc,
                   const T* start = nullptr, int64_t lds = 0) {
  for (int64_t j = 0, w; j < n; j += w) {
    w = strip_width<T>(n - j);
    strip(w, m, k, a, b + j, ldb, c + j, ldc, start ? start + j : start, lds);
  }
}

// --- moving ---------------------------------------------------------------------------------------------------

template <class T>
INLINE void copy(T* to, const T* from, int64_t count) {
  if (count > 0) __builtin_memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
}
template <class T>
INLINE void clear(T* to, int64_t count) {
  if (count > 0) __builtin_memset(to, 0, static_cast<size_t>(count) * sizeof(T));
}
template <class T>
INLINE T* scratch_of(int slot, int64_t count) {
  return static_cast<T*>(scratch(slot, static_cast<size_t>(count) * sizeof(T)));
}

// One stage of transposing a square of vectors: exchanges the off-diagonal squares of side S of each square of 2 S.
template <int S, class T, size_t... J>
INLINE void exchange(Vec<T>* r, std::index_sequence<J...>) {
  constexpr int w = sizeof...(J);
  UNROLL for (int i = 0; i < w; i++) if (!(i & S)) {
    const Vec<T> a = r[i], b = r[i + S];
    r[i] = __builtin_shufflevector(a, b, (int(J) & S ? w + int(J) - S : int(J))...);
    r[i + S] = __builtin_shufflevector(a, b, (int(J) & S ? w + int(J) : int(J) + S)...);
  }
}
// A square of vectors, transposed.
template <class T, size_t... J>
INLINE void turn(Vec<T>* r, std::index_sequence<J...> indices) {
  exchange<1, T>(r, indices);
  exchange<2, T>(r, indices);
  if constexpr (sizeof...(J) > 4) exchange<4, T>(r, indices);
  if constexpr (sizeof...(J) > 8) exchange<8, T>(r, indices);
}
// to (cols, rows) = from (rows, cols), transposed
template <class T>
void transpose(int64_t rows, int64_t cols, const T* from, int64_t ld_from, T* to, int64_t ld_to) {
  constexpr int w = kLanes<T>;
  using Indices = std::make_index_sequence<w>;
  for (int64_t i = 0; i < rows; i += w)
    for (int64_t j = 0; j < cols; j += w) {
      const int64_t h = least<int64_t>(w, rows - i), v = least<int64_t>(w, cols - j);
      const T* corner = from + i * ld_from + j;
      T* turned = to + j * ld_to + i;
      Vec<T> r[w];
      if (h == w && v == w) {
        UNROLL for (int t = 0; t < w; t++) r[t] = load(corner + t * ld_from);
        turn<T>(r, Indices{});
        UNROLL for (int t = 0; t < w; t++) store(turned + t * ld_to, r[t]);
      } else {
        const Mask across(v), down(h);
        UNROLL for (int t = 0; t < w; t++) r[t] = t < h ? load_part(corner + t * ld_from, across) : Vec<T>{};
        turn<T>(r, Indices{});
        UNROLL for (int t = 0; t < w; t++) if (t < v) store_part(turned + t * ld_to, r[t], down);
      }
    }
}

// --- threads --------------------------------------------------------------------------------------------------

template <class F>
INLINE void parallel(const Pool& pool, int64_t count, const F& f) {
  if (count > 0) pool.run(pool.self, count, [](const void* arg, int64_t i) { (*static_cast<const F*>(arg))(i); }, &f);
}

}  // namespace weft::WEFT_VARIANT
