// Matrix products. The result is cut into blocks; each is one task, which copies the strips of b that it needs into
// cache, so tasks never wait for each other. A sum is computed in an order that its length alone decides: neither the
// cut nor the number of threads changes a bit.
#include "product.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kDepth = 128;        // of a strip: 128 x 48 floats stay in the first-level cache
constexpr int64_t kFarDepth = 64;      // where each column of `a` is in a page of its own
constexpr int64_t kRowsUncopied = 32;  // with fewer rows, a strip is read as it lies in memory
constexpr int64_t kFewRows = 8;        // with fewer rows, memory is what costs: b is read in the order of its rows
constexpr int64_t kShallow = 16;       // rows of b that are read side by side then
constexpr int kAhead = 16;             // columns of a transposed `a` that are on their way
template <class T>
constexpr Limits kLimits{256, 480, 8, kLanes<T>, 128, 1e6, 1.6e7};  // 256 x 480 sums stay in the second-level cache

template <class T>
struct Block {
  int64_t m, n, k;
  View<T> a;
  const T* b;
  int64_t ldb;
  bool transpose_b;
  T* c;
  int64_t ldc;
  const T* bias;
};

template <int VECTORS, class T>
void copy_vectors(int64_t rows, const T* from, int64_t ld, T* to) {
  for (int64_t r = 0; r < rows; r++, from += ld, to += VECTORS * kLanes<T>)
    UNROLL for (int j = 0; j < VECTORS; j++) store(to + j * kLanes<T>, load(from + j * kLanes<T>));
}
// to (depth, width) = a strip of b, of a width as strip_width says
template <class T>
void copy_strip(int64_t width, int64_t depth, const T* from, int64_t ld, T* to) {
  if (width == 3 * kLanes<T>)
    copy_vectors<3>(depth, from, ld, to);
  else if (width == 2 * kLanes<T>)
    copy_vectors<2>(depth, from, ld, to);
  else if (width == kLanes<T>)
    copy_vectors<1>(depth, from, ld, to);
  else
    for (int64_t r = 0; r < depth; r++) copy(to + r * width, from + r * ld, width);
}

// Rows on their way to the first-level cache, to be read (0) or written (1).
template <int WRITE, class T>
INLINE void fetch_rows(const T* p, int64_t ld, int64_t rows, int64_t count) {
  constexpr int64_t line = 64 / sizeof(T);
  for (int64_t r = 0; r < rows; r++, p += ld)
    for (int64_t i = 0; i < count; i += line) __builtin_prefetch(p + i, WRITE);
}

template <class T>
void block(const Block<T>& x) {
  const bool copied = x.m > kRowsUncopied, by_columns = x.a.cs != 1;
  const bool far = x.a.cs * static_cast<int64_t>(sizeof(T)) >= 4096;
  const int64_t most_depth = x.m <= kFewRows ? kShallow : far ? kFarDepth : kDepth;
  T* copies = scratch_of<T>(0, kDepth * kMostVectors * kLanes<T>);
  for (int64_t p = 0; p < x.k; p += most_depth) {
    const int64_t depth = least(most_depth, x.k - p), lds = p ? x.ldc : 0;
    const View<T> a{x.a.p + p * x.a.cs, x.a.rs, x.a.cs};
    for (int64_t j = 0, w; j < x.n; j += w) {
      w = strip_width<T>(x.n - j);
      const T* start = p ? x.c + j : x.bias ? x.bias + j : nullptr;
      const T* b = x.b + (x.transpose_b ? j * x.ldb + p : p * x.ldb + j);
      int64_t ldb = x.ldb;
      if (x.transpose_b) {
        transpose(w, depth, b, x.ldb, copies, w);
        b = copies, ldb = w;
      } else if (copied) {
        copy_strip(w, depth, b, x.ldb, copies);
        b = copies, ldb = w;
      }
      // Later strips find `a` in the second-level cache, and later depths the result.
      const auto prefetch = [&](int64_t i, int64_t rows) {
        if (!p) fetch_rows<1>(x.c + i * x.ldc + j, x.ldc, rows, w);
        if (!j && !by_columns) fetch_rows<0>(a.p + (i + rows) * a.rs, a.rs, least(rows, x.m - i - rows), depth);
      };
      if (by_columns && !j)
        strip<T, kAhead>(w, x.m, depth, a, b, ldb, x.c + j, x.ldc, start, lds, prefetch);
      else
        strip(w, x.m, depth, a, b, ldb, x.c + j, x.ldc, start, lds, prefetch);
    }
  }
}

// --- few rows of a, by rows of b ------------------------------------------------------------------------------

constexpr int kDots = 16;  // sums at once

// c (ROWS, columns) = bias + a b', with `b` as it lies in memory, transposed: sums run along the vectors. There are at
// most kDots / ROWS columns.
template <class T, int ROWS>
void dots(int64_t columns, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc,
          const T* bias) {
  constexpr int w = kLanes<T>, COLUMNS = kDots / ROWS;
  Vec<T> acc[kDots] = {};
  const T* rows[COLUMNS];
  for (int j = 0; j < COLUMNS; j++) rows[j] = b + least<int64_t>(j, columns - 1) * ldb;
  each_vector<T>(k, [&](int64_t p, auto lanes) {
    Vec<T> x[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++) x[i] = load(a + i * lda + p, lanes);
    UNROLL for (int j = 0; j < COLUMNS; j++) {
      const Vec<T> y = load(rows[j] + p, lanes);
      UNROLL for (int i = 0; i < ROWS; i++) acc[i * COLUMNS + j] += x[i] * y;
    }
  });
  T sums[kDots];
  UNROLL for (int s = 0; s < kDots; s += w) {
    turn<T>(acc + s, std::make_index_sequence<w>{});
    UNROLL for (int half = w / 2; half; half /= 2) {
      UNROLL for (int t = 0; t < half; t++) acc[s + t] += acc[s + t + half];
    }
    store(sums + s, acc[s]);
  }
  for (int i = 0; i < ROWS; i++)
    for (int64_t j = 0; j < columns; j++) c[i * ldc + j] = sums[i * COLUMNS + j] + (bias ? bias[j] : T{});
}
template <int ROWS, class T>
void rows_of_dots(const Block<T>& x, int64_t i) {
  for (int64_t j = 0; j < x.n; j += kDots / ROWS)
    dots<T, ROWS>(least<int64_t>(kDots / ROWS, x.n - j), x.k, x.a.p + i * x.a.rs, x.a.rs, x.b + j * x.ldb, x.ldb,
                  x.c + i * x.ldc + j, x.ldc, x.bias ? x.bias + j : nullptr);
}
template <class T>
void block_of_dots(const Block<T>& x) {
  int64_t i = 0;
  for (; i + 4 <= x.m; i += 4) rows_of_dots<4>(x, i);
  if (i + 2 <= x.m) rows_of_dots<2>(x, i), i += 2;
  if (i < x.m) rows_of_dots<1>(x, i);
}

// --- all ------------------------------------------------------------------------------------------------------

template <class T>
void product(const Pool& pool, const Product& x) {
  if (!x.batch || !x.m || !x.n) return;
  const T *a = static_cast<const T*>(x.a), *b = static_cast<const T*>(x.b), *bias = static_cast<const T*>(x.bias);
  T* c = static_cast<T*>(x.c);
  if (!x.k) {  // sums of nothing
    for (int64_t i = 0; i < x.batch * x.m; i++) {
      if (bias)
        copy(c + i * x.n, bias, x.n);
      else
        clear(c + i * x.n, x.n);
    }
    return;
  }
  const bool by_rows = x.m <= kFewRows && x.transpose_b && !x.transpose_a;
  blocks(pool, x, kLimits<T>, [&](int64_t at, int64_t i, int64_t rows, int64_t j, int64_t columns) {
    const T* ai = a + at * (x.transpose_a ? x.k : x.m) * x.lda;
    const T* bi = b + at * (x.transpose_b ? x.n : x.k) * x.ldb;
    const Block<T> part{rows,
                        columns,
                        x.k,
                        x.transpose_a ? View<T>{ai + i, 1, x.lda} : View<T>{ai + i * x.lda, x.lda, 1},
                        bi + (x.transpose_b ? j * x.ldb : j),
                        x.ldb,
                        x.transpose_b,
                        c + (at * x.m + i) * x.n + j,
                        x.n,
                        bias ? bias + j : nullptr};
    by_rows ? block_of_dots(part) : block(part);
  });
}

}  // namespace

void product_f32(const Pool& pool, const Product& x) { product<float>(pool, x); }
void product_f64(const Pool& pool, const Product& x) { product<double>(pool, x); }

}  // namespace weft::WEFT_VARIANT
