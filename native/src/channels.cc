// Sums over all but the channels, and batch normalisation by them. A task is one channel: a plane of contiguous
// elements in each image, which stay in second-level cache for all passes.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

// The sum of f(address, mask, whether the vector is a part) over the vectors of a channel's planes. Planes are added up
// in double precision.
template <class F>
INLINE float sum_planes(const Channels& s, const F& f) {
  const Mask mask(s.plane % kLanesF);
  const int64_t whole = s.plane - s.plane % kLanesF;
  double total = 0;
  for (int64_t n = 0; n < s.images; n++) {
    const int64_t first = n * s.channels * s.plane;
    VecF sums[4] = {};  // one after the other would wait for each addition
    int64_t i = 0;
    for (; i + 4 * kLanesF <= whole; i += 4 * kLanesF) {
      UNROLL for (int j = 0; j < 4; j++) sums[j] += f(first + i + j * kLanesF, mask, std::false_type{});
    }
    for (; i < whole; i += kLanesF) sums[0] += f(first + i, mask, std::false_type{});
    if (whole < s.plane) sums[1] += f(first + whole, mask, std::true_type{});
    total += sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  return static_cast<float>(total);
}
// f(address, mask, whether the vector is a part) for the vectors of a channel's planes
template <class F>
INLINE void for_planes(const Channels& s, const F& f) {
  const Mask mask(s.plane % kLanesF);
  const int64_t whole = s.plane - s.plane % kLanesF;
  for (int64_t n = 0; n < s.images; n++) {
    const int64_t first = n * s.channels * s.plane;
    for (int64_t i = 0; i < whole; i += kLanesF) f(first + i, mask, std::false_type{});
    if (whole < s.plane) f(first + whole, mask, std::true_type{});
  }
}

}  // namespace

void channel_sums(const Pool& pool, const Channels& s, const float* x, float* sums) {
  parallel(pool, s.channels, [&](int64_t c) {
    const float* in = x + c * s.plane;
    sums[c] = sum_planes(s, [&](int64_t i, Mask m, auto part) { return load<decltype(part)::value>(in + i, m); });
  });
}

void batch_norm(const Pool& pool, const Channels& s, float eps, const float* x, const float* weight, const float* bias,
                float* y, float* mean, float* variance, float* rstd) {
  const float share = 1.f / static_cast<float>(s.images * s.plane);
  parallel(pool, s.channels, [&](int64_t c) {
    const float* in = x + c * s.plane;
    float* out = y + c * s.plane;
    const float centre =
        share * sum_planes(s, [&](int64_t i, Mask m, auto part) { return load<decltype(part)::value>(in + i, m); });
    float centres[kLanesF];  // as the elements are loaded, so that a part leaves other lanes 0
    store(centres, splat(centre));
    const float spread = share * sum_planes(s, [&](int64_t i, Mask m, auto part) {
                           constexpr bool PART = decltype(part)::value;
                           const VecF d = load<PART>(in + i, m) - load<PART>(centres, m);
                           return d * d;
                         });
    mean[c] = centre, variance[c] = spread, rstd[c] = 1.f / std::sqrt(spread + eps);
    const float scale = rstd[c] * weight[c], offset = bias[c];
    for_planes(s, [&](int64_t i, Mask m, auto part) {
      constexpr bool PART = decltype(part)::value;
      store<PART>(out + i, (load<PART>(in + i, m) - centre) * scale + offset, m);
    });
  });
}

void batch_norm_backward(const Pool& pool, const Channels& s, const float* g, const float* x, const float* mean,
                         const float* rstd, const float* weight, float* dx, float* dweight, float* dbias) {
  const float share = 1.f / static_cast<float>(s.images * s.plane);
  parallel(pool, s.channels, [&](int64_t c) {
    const float *gs = g + c * s.plane, *in = x + c * s.plane;
    float* out = dx + c * s.plane;
    const float centre = mean[c], r = rstd[c];
    dbias[c] = sum_planes(s, [&](int64_t i, Mask m, auto part) { return load<decltype(part)::value>(gs + i, m); });
    dweight[c] = r * sum_planes(s, [&](int64_t i, Mask m, auto part) {
                   constexpr bool PART = decltype(part)::value;
                   return load<PART>(gs + i, m) * (load<PART>(in + i, m) - centre);
                 });
    const float scale = r * weight[c], offset = dbias[c] * share, tilt = dweight[c] * r * share;
    for_planes(s, [&](int64_t i, Mask m, auto part) {
      constexpr bool PART = decltype(part)::value;
      const VecF centred = load<PART>(in + i, m) - centre;
      store<PART>(out + i, (load<PART>(gs + i, m) - offset - centred * tilt) * scale, m);
    });
  });
}

}  // namespace weft::WEFT_VARIANT
