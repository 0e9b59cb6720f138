// Functions of single-precision numbers, vector by vector.
#include "functions.h"
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

using VecI = Vec<int32_t>;

INLINE VecF magnitude(VecF x) { return (VecF)((VecU)x & 0x7fffffffu); }
INLINE VecF with_sign_of(VecF x, VecF sign) { return (VecF)(((VecU)x & 0x7fffffffu) | ((VecU)sign & 0x80000000u)); }

template <int N>
INLINE VecF polynomial(VecF x, const float (&coefficients)[N]) {
  VecF y = splat(coefficients[0]);
  UNROLL for (int i = 1; i < N; i++) y = y * x + coefficients[i];
  return y;
}

// e^x, also where the result is infinite or below the normal numbers: vec.h has `exp` without.
INLINE VecF whole_exp(VecF x) {
  const Exponential e = exponential(x, -104.f, 89.f);
  const VecI n = (VecI)e.n, half = n >> 1;  // 2^n may be no number, 2^(n / 2) is
  return e.p * (VecF)((half + 127) << 23) * (VecF)((n - half + 127) << 23);
}

// The sources of coefficients stand in weft/_lazy/interpreter/error.py, which has the same functions for all types.
INLINE VecF erf_inside(VecF x) {
  const VecF s = x * x;
  return x *
         polynomial(s, {0.00022905065861350646f, 0.0034082910107109506f, 0.050955695062380861f, 0.18520832239976145f,
                        1.128379143519084f}) /
         polynomial(s, {-1.1791602954361697e-7f, 0.000023547966471313185f, 0.0010179625278914885f,
                        0.014070470171167667f, 0.11098505178285362f, 0.49746925110067538f, 1.f});
}
INLINE VecF erf_of(VecF x) {
  const VecF size = magnitude(x), one = with_sign_of(splat(1.f), x);
  return size >= 3.7439211627767994f ? one : erf_inside(x);
}
INLINE VecF erfc_of(VecF x) {
  const VecF size = magnitude(x), inverse = 1.f / size, s = inverse * inverse;
  const VecF near = polynomial(s, {2.326819970068386e-2f, -1.387039388740657e-1f, 3.687424674597105e-1f,
                                   -5.824733027278666e-1f, 6.210004621745983e-1f, -4.944515323274145e-1f,
                                   3.404879937665872e-1f, -2.741127028184656e-1f, 5.638259427386472e-1f});
  const VecF far =
      polynomial(s, {-1.047766399936249e1f, 1.297719955372516e1f, -7.495518717768503e0f, 2.921019019210786e0f,
                     -1.015265279202700e0f, 4.218463358204948e-1f, -2.820767439740514e-1f, 5.641895067754075e-1f});
  // The square is rounded; what that leaves of it is a factor of its own.
  const VecF square = size * size;
#ifdef __AVX512F__
  const VecF rest = (VecF)_mm512_fmsub_ps((__m512)size, (__m512)size, (__m512)square);
#else
  const VecF rest = (VecF)_mm256_fmsub_ps((__m256)size, (__m256)size, (__m256)square);
#endif
  const VecF decay = whole_exp(-square) * (1.f - rest);
  VecF outside = decay * inverse * (size < 2.f ? near : far);
  outside = size > 11.f ? VecF{} : outside;  // below all numbers, where `rest` may be none
  outside = x < 0.f ? 2.f - outside : outside;
  return size <= 1.f ? 1.f - erf_inside(x) : outside;
}

INLINE VecF logistic_of(VecF x) {
  const VecF e = whole_exp(-magnitude(x));
  return (x < 0.f ? e : splat(1.f)) / (1.f + e);
}

template <class F>
INLINE void apply(int64_t count, const float* x, float* y, const F& f) {
  each_vector<float>(count, [&](int64_t i, auto lanes) { store(y + i, f(load(x + i, lanes)), lanes); });
}

}  // namespace

void erf(int64_t count, const float* x, float* y) {
  apply(count, x, y, [](VecF v) { return erf_of(v); });
}
void erfc(int64_t count, const float* x, float* y) {
  apply(count, x, y, [](VecF v) { return erfc_of(v); });
}
void logistic(int64_t count, const float* x, float* y) {
  apply(count, x, y, [](VecF v) { return logistic_of(v); });
}

}  // namespace weft::WEFT_VARIANT
