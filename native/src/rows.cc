// What is computed row by row of a matrix: layer normalisation and cross entropy. A row stays in cache for all passes.
// Tasks are blocks of rows, cut by the sizes alone, so sums do not depend on the number of threads.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kTask = 1 << 13;   // elements of a task at least
constexpr int64_t kMostBlocks = 64;  // over which the sums of columns are added up

template <class F>
void each_row(const Pool& pool, const Rows& s, const F& f) {
  const int64_t block = most<int64_t>(1, kTask / most<int64_t>(1, s.width));
  parallel(pool, ceil_div(s.count, block), [&](int64_t i) {
    for (int64_t r = i * block; r < least(s.count, (i + 1) * block); r++) f(r);
  });
}

}  // namespace

void layer_norm(const Pool& pool, const Rows& s, float eps, const float* x, const float* weight, const float* bias,
                float* y, float* mean, float* rstd) {
  const float share = 1.f / static_cast<float>(s.width);
  each_row(pool, s, [&](int64_t r) {
    const float* row = x + r * s.width;
    // Sums of differences: rows of equal numbers have exactly that mean.
    const float first = row[0];
    const float centre =
        first + share * sum_each(s.width, [&](int64_t i, auto lanes) { return load(row + i, lanes) - first; });
    const float spread = share * sum_each(s.width, [&](int64_t i, auto lanes) {
                           const VecF d = load(row + i, lanes) - centre;
                           return d * d;
                         });
    const float scale = 1.f / __builtin_sqrtf(spread + eps);
    mean[r] = centre, rstd[r] = scale;
    each_vector<float>(s.width, [&](int64_t i, auto lanes) {
      const VecF normal = (load(row + i, lanes) - centre) * scale;
      store(y + r * s.width + i, normal * load(weight + i, lanes) + load(bias + i, lanes), lanes);
    });
  });
}

void layer_norm_backward(const Pool& pool, const Rows& s, const float* g, const float* x, const float* mean,
                         const float* rstd, const float* weight, float* dx, float* dweight, float* dbias) {
  const int64_t n = s.width, block = most(ceil_div(s.count, kMostBlocks), ceil_div(kTask, most<int64_t>(1, n)));
  const int64_t blocks = ceil_div(s.count, block);
  const float share = 1.f / static_cast<float>(n);
  float* sums = scratch_of<float>(2, blocks * 2 * n);  // of each block, for the weight and for the bias
  parallel(pool, blocks, [&](int64_t b) {
    float *weight_sums = sums + b * 2 * n, *bias_sums = weight_sums + n;
    clear(weight_sums, 2 * n);
    for (int64_t r = b * block; r < least(s.count, (b + 1) * block); r++) {
      const float *row = x + r * n, *gs = g + r * n;
      const float centre = mean[r], scale = rstd[r];
      VecF flat{}, tilted{};
      each_vector<float>(n, [&](int64_t i, auto lanes) {
        const VecF normal = (load(row + i, lanes) - centre) * scale, d = load(gs + i, lanes);
        const VecF weighted = d * load(weight + i, lanes);
        flat += weighted, tilted += weighted * normal;
        store(weight_sums + i, load(weight_sums + i, lanes) + d * normal, lanes);
        store(bias_sums + i, load(bias_sums + i, lanes) + d, lanes);
      });
      const float offset = share * sum(flat), tilt = share * sum(tilted);
      each_vector<float>(n, [&](int64_t i, auto lanes) {
        const VecF normal = (load(row + i, lanes) - centre) * scale;
        store(dx + r * n + i, (load(gs + i, lanes) * load(weight + i, lanes) - offset - normal * tilt) * scale, lanes);
      });
    }
  });
  clear(dweight, n), clear(dbias, n);
  for (int64_t b = 0; b < blocks; b++)
    each_vector<float>(n, [&](int64_t i, auto lanes) {
      const float* from = sums + b * 2 * n + i;
      store(dweight + i, load(dweight + i, lanes) + load(from, lanes), lanes);
      store(dbias + i, load(dbias + i, lanes) + load(from + n, lanes), lanes);
    });
}

void cross_entropy(const Pool& pool, const Rows& s, const float* x, const int64_t* classes, float* losses,
                   float* norms) {
  each_row(pool, s, [&](int64_t r) {
    const float* row = x + r * s.width;
    VecF tops = splat(-__builtin_inff());
    each_vector<float>(s.width, [&](int64_t i, auto lanes) {
      const VecF v = only(load(row + i, lanes), lanes, -__builtin_inff());
      tops = v > tops ? v : tops;
    });
    const float top = maximum(tops);
    const float total = sum_each(s.width, [&](int64_t i, auto lanes) { return exp(load(row + i, lanes) - top); });
    norms[2 * r] = top, norms[2 * r + 1] = __builtin_logf(total);
    losses[r] = classes[r] < 0 ? 0.f : norms[2 * r + 1] - (row[classes[r]] - top);
  });
}

void cross_entropy_backward(const Pool& pool, const Rows& s, const float* g, const float* x, const int64_t* classes,
                            const float* norms, float* dx) {
  each_row(pool, s, [&](int64_t r) {
    const float *row = x + r * s.width, top = norms[2 * r], total = norms[2 * r + 1], scale = g[r];
    float* out = dx + r * s.width;
    if (classes[r] < 0) return clear(out, s.width);
    each_vector<float>(s.width, [&](int64_t i, auto lanes) {
      store(out + i, exp(load(row + i, lanes) - top - total) * scale, lanes);
    });
    out[classes[r]] -= scale;
  });
}

}  // namespace weft::WEFT_VARIANT
