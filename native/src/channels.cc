// Sums over all but the channels, and batch normalisation by them. A task is one channel: a plane of contiguous
// elements in each image, which stay in second-level cache for all passes.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

// The sum of f(address, lanes) over the vectors of a channel's planes. Planes are added up in double precision.
template <class F>
INLINE float sum_planes(const Channels& s, const F& f) {
  double total = 0;
  for (int64_t n = 0; n < s.images; n++) {
    const int64_t first = n * s.channels * s.plane;
    total += sum_each(s.plane, [&](int64_t i, auto lanes) { return f(first + i, lanes); });
  }
  return static_cast<float>(total);
}
// f(address, lanes) for the vectors of a channel's planes
template <class F>
INLINE void for_planes(const Channels& s, const F& f) {
  for (int64_t n = 0; n < s.images; n++) {
    const int64_t first = n * s.channels * s.plane;
    each_vector<float>(s.plane, [&](int64_t i, auto lanes) { f(first + i, lanes); });
  }
}

}  // namespace

void channel_sums(const Pool& pool, const Channels& s, const float* x, float* sums) {
  parallel(pool, s.channels, [&](int64_t c) {
    const float* in = x + c * s.plane;
    sums[c] = sum_planes(s, [&](int64_t i, auto lanes) { return load(in + i, lanes); });
  });
}

void batch_norm(const Pool& pool, const Channels& s, float eps, const float* x, const float* weight, const float* bias,
                float* y, float* mean, float* variance, float* rstd) {
  const float share = 1.f / static_cast<float>(s.images * s.plane);
  parallel(pool, s.channels, [&](int64_t c) {
    const float* in = x + c * s.plane;
    float* out = y + c * s.plane;
    // Sums of differences: channels of equal numbers have exactly that mean.
    const float first = s.images && s.plane ? in[0] : 0.f;
    const float centre =
        first + share * sum_planes(s, [&](int64_t i, auto lanes) { return load(in + i, lanes) - first; });
    const float spread = share * sum_planes(s, [&](int64_t i, auto lanes) {
                           const VecF d = load(in + i, lanes) - centre;
                           return d * d;
                         });
    mean[c] = centre, variance[c] = spread, rstd[c] = 1.f / __builtin_sqrtf(spread + eps);
    const float scale = rstd[c] * weight[c], offset = bias[c];
    for_planes(s,
               [&](int64_t i, auto lanes) { store(out + i, (load(in + i, lanes) - centre) * scale + offset, lanes); });
  });
}

void batch_norm_backward(const Pool& pool, const Channels& s, const float* g, const float* x, const float* mean,
                         const float* rstd, const float* weight, float* dx, float* dweight, float* dbias) {
  const float share = 1.f / static_cast<float>(s.images * s.plane);
  parallel(pool, s.channels, [&](int64_t c) {
    const float *gs = g + c * s.plane, *in = x + c * s.plane;
    float* out = dx + c * s.plane;
    const float centre = mean[c], r = rstd[c];
    dbias[c] = sum_planes(s, [&](int64_t i, auto lanes) { return load(gs + i, lanes); });
    dweight[c] =
        r * sum_planes(s, [&](int64_t i, auto lanes) { return load(gs + i, lanes) * (load(in + i, lanes) - centre); });
    const float scale = r * weight[c], offset = dbias[c] * share, tilt = dweight[c] * r * share;
    for_planes(s, [&](int64_t i, auto lanes) {
      const VecF centred = load(in + i, lanes) - centre;
      store(out + i, (load(gs + i, lanes) - offset - centred * tilt) * scale, lanes);
    });
  });
}

}  // namespace weft::WEFT_VARIANT
