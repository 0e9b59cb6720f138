// Matrix products. The result is cut into blocks by its sizes alone, so sums do not depend on the number of threads;
// each block is one task, which copies the strips of b that it needs into cache, so tasks never wait for each other.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kDepth = 256;         // of a strip: 256 x 48 floats stay in the first-level cache
constexpr int64_t kRows = 256;          // of a block: what a strip is copied for; 256 x 256 stay in the second level
constexpr int64_t kTasks = 8;           // blocks at least, where the sizes allow
constexpr double kAlone = 5e5;          // operations that are not worth waking a thread for
constexpr int64_t kRowsUncopied = 16;   // with fewer rows, a strip is read as it lies in memory

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

constexpr int64_t kPanel = 8;  // rows of a panel

// a (rows, depth), stored transposed, as panels of rows: each column of a panel is contiguous.
template <class T>
void panels(View<T> a, int64_t rows, int64_t depth, T* to) {
  const int64_t whole = rows / kPanel * kPanel, rest = rows - whole;
  for (int64_t p = 0; p < depth; p++) {
    const T* column = a.p + p * a.cs;
    for (int64_t i = 0; i < whole; i += kPanel) copy(to + i * depth + p * kPanel, column + i, kPanel);
    for (int64_t r = 0; r < rest; r++) to[whole * depth + p * rest + r] = column[whole + r];
  }
}

template <class T>
void block(const Block<T>& x) {
  const bool by_columns = x.a.rs == 1 && x.a.cs != 1;
  T* strips = scratch_of<T>(0, kDepth * kMostVectors * kLanes<T>);
  T* columns = by_columns ? scratch_of<T>(1, x.m * kDepth) : nullptr;
  for (int64_t p = 0; p < x.k; p += kDepth) {
    const int64_t depth = least(kDepth, x.k - p);
    const T* start = p ? x.c : x.bias;
    const int64_t lds = p ? x.ldc : 0;
    if (by_columns) panels({x.a.p + p * x.a.cs, 1, x.a.cs}, x.m, depth, columns);
    for (int64_t j = 0, w; j < x.n; j += w) {
      w = strip_width<T>(x.n - j);
      const T* b = x.b + (x.transpose_b ? j * x.ldb + p : p * x.ldb + j);
      int64_t ldb = x.ldb;
      if (x.transpose_b) {
        transpose(w, depth, b, x.ldb, strips, w);
        b = strips, ldb = w;
      } else if (x.m > kRowsUncopied) {
        for (int64_t r = 0; r < depth; r++) copy(strips + r * w, b + r * x.ldb, w);
        b = strips, ldb = w;
      }
      const T* from = start ? start + j : nullptr;
      if (!by_columns) {
        strip(w, x.m, depth, {x.a.p + p * x.a.cs, x.a.rs, x.a.cs}, b, ldb, x.c + j, x.ldc, from, lds);
        continue;
      }
      for (int64_t i = 0; i < x.m; i += kPanel) {
        const int64_t h = least(kPanel, x.m - i);
        strip(w, h, depth, {columns + i * depth, 1, h}, b, ldb, x.c + i * x.ldc + j, x.ldc,
              from ? from + i * lds : from, lds);
      }
    }
  }
}

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
  constexpr int64_t wide = kMostVectors * kLanes<T>;
  const int64_t row_blocks = ceil_div(x.m, x.m <= 2 * kRows ? kRows / 2 : kRows);
  const int64_t rows = ceil_div(ceil_div(x.m, row_blocks), 8) * 8;
  // A block of a transposed matrix is copied for each group of columns, so there are fewer groups.
  const int64_t tasks_at_least = x.transpose_a ? kTasks / 2 : kTasks;
  const int64_t groups = most<int64_t>(1, least(ceil_div(tasks_at_least, row_blocks * x.batch), ceil_div(x.n, wide)));
  const int64_t columns = ceil_div(ceil_div(x.n, groups), wide) * wide;
  const int64_t down = ceil_div(x.m, rows), across = ceil_div(x.n, columns);
  const auto task = [&](int64_t t) {
    const int64_t j = t % across * columns, i = t / across % down * rows, at = t / across / down;
    const T *ai = a + at * x.m * x.k, *bi = b + at * x.k * x.n;
    block<T>({least(rows, x.m - i), least(columns, x.n - j), x.k,
              x.transpose_a ? View<T>{ai + i, 1, x.m} : View<T>{ai + i * x.k, x.k, 1},
              bi + (x.transpose_b ? j * x.k : j), x.transpose_b ? x.k : x.n, x.transpose_b,
              c + (at * x.m + i) * x.n + j, x.n, bias ? bias + j : nullptr});
  };
  const int64_t tasks = x.batch * down * across;
  if (2.0 * static_cast<double>(x.batch * x.m) * static_cast<double>(x.n * x.k) < kAlone)
    for (int64_t t = 0; t < tasks; t++) task(t);
  else
    parallel(pool, tasks, task);
}

}  // namespace

void product_f32(const Pool& pool, const Product& x) { product<float>(pool, x); }
void product_f64(const Pool& pool, const Product& x) { product<double>(pool, x); }

}  // namespace weft::WEFT_VARIANT
