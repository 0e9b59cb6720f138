// Conversions between NumPy's own numbers, rounding as C++ does, and so NumPy.

#include <immintrin.h>

#include <complex>
#include <cstdint>
#include <type_traits>

#include "loops.h"
#include "python.h"

namespace weft {
namespace {

template <typename T>
constexpr bool is_complex = false;
template <typename T>
constexpr bool is_complex<std::complex<T>> = true;

template <typename To, typename From>
To converted(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (is_complex<To> && is_complex<From>) {
    return {static_cast<typename To::value_type>(value.real()), static_cast<typename To::value_type>(value.imag())};
  } else if constexpr (is_complex<To>) {
    return {static_cast<typename To::value_type>(value), 0};
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void cast(char** args, const npy_intp* count, const npy_intp* strides, void*) {
  const npy_intp n = *count, in = strides[0], out = strides[1];
  if (in == sizeof(From) && out == sizeof(To)) {
    const From* __restrict source = reinterpret_cast<const From*>(args[0]);
    To* __restrict target = reinterpret_cast<To*>(args[1]);
    for (npy_intp i = 0; i < n; ++i) target[i] = converted<To>(source[i]);
    return;
  }
  for (npy_intp i = 0; i < n; ++i) {
    *reinterpret_cast<To*>(args[1] + i * out) = converted<To>(*reinterpret_cast<const From*>(args[0] + i * in));
  }
}

// `cast` between float16 and float32 by the instructions for it.
__attribute__((target("avx,f16c"))) void widen_half(char** args, const npy_intp* count, const npy_intp* strides,
                                                    void*) {
  const npy_intp n = *count, in = strides[0], out = strides[1];
  npy_intp i = 0;
  if (in == 2 && out == 4) {
    for (; i + 8 <= n; i += 8) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(args[0] + i * in));
      _mm256_storeu_ps(reinterpret_cast<float*>(args[1] + i * out), _mm256_cvtph_ps(halves));
    }
  }
  for (; i < n; ++i) {
    const auto half = *reinterpret_cast<const std::uint16_t*>(args[0] + i * in);
    *reinterpret_cast<float*>(args[1] + i * out) = _cvtsh_ss(half);
  }
}

__attribute__((target("avx,f16c"))) void round_half(char** args, const npy_intp* count, const npy_intp* strides,
                                                    void*) {
  const npy_intp n = *count, in = strides[0], out = strides[1];
  npy_intp i = 0;
  if (in == 4 && out == 2) {
    for (; i + 8 <= n; i += 8) {
      const __m256 floats = _mm256_loadu_ps(reinterpret_cast<const float*>(args[0] + i * in));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(args[1] + i * out),
                       _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
    }
  }
  for (; i < n; ++i) {
    const float value = *reinterpret_cast<const float*>(args[0] + i * in);
    *reinterpret_cast<std::uint16_t*>(args[1] + i * out) = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
  }
}

// Calls `body` with a number of the type that NumPy numbers so; false if it is none of these.
template <typename Body>
bool with_type(int type, const Body& body) {
  switch (type) {
    case NPY_BOOL:
      return body(bool());
    case NPY_INT8:
      return body(std::int8_t());
    case NPY_INT16:
      return body(std::int16_t());
    case NPY_INT32:
      return body(std::int32_t());
    case NPY_INT64:
      return body(std::int64_t());
    case NPY_UINT8:
      return body(std::uint8_t());
    case NPY_UINT16:
      return body(std::uint16_t());
    case NPY_UINT32:
      return body(std::uint32_t());
    case NPY_UINT64:
      return body(std::uint64_t());
    case NPY_FLOAT:
      return body(float());
    case NPY_DOUBLE:
      return body(double());
    case NPY_CFLOAT:
      return body(std::complex<float>());
    case NPY_CDOUBLE:
      return body(std::complex<double>());
    default:
      return false;
  }
}

}  // namespace

LoopFunction number_cast(int from, int to) {
  LoopFunction found = nullptr;
  const bool has_instructions = __builtin_cpu_supports("f16c");
  if (from == NPY_HALF && to == NPY_FLOAT) return has_instructions ? widen_half : cast<_Float16, float>;
  if (from == NPY_FLOAT && to == NPY_HALF) return has_instructions ? round_half : cast<float, _Float16>;
  with_type(from, [&](auto source) {
    return with_type(to, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      if constexpr (!is_complex<From> || is_complex<To>) found = cast<From, To>;
      return found != nullptr;
    });
  });
  return found;
}

}  // namespace weft
