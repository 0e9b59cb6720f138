// Kernels for functions of single-precision numbers: y[i] = f(x[i]). A few units in the last place; infinities, NaN,
// zeros of both signs and numbers below the normal ones are as the mathematics has them.
#pragma once
#include <cstdint>

namespace weft {

#define WEFT_FUNCTIONS                                \
  void erf(int64_t count, const float* x, float* y);  \
  void erfc(int64_t count, const float* x, float* y); \
  void logistic(int64_t count, const float* x, float* y);

namespace avx2 {
WEFT_FUNCTIONS
}
namespace avx512 {
WEFT_FUNCTIONS
}
#undef WEFT_FUNCTIONS

}  // namespace weft
