// Conversions between NumPy's own numbers, rounding as C++ does, and so NumPy.

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
  if (from == NPY_HALF && to == NPY_FLOAT) return cast<_Float16, float>;
  if (from == NPY_FLOAT && to == NPY_HALF) return cast<float, _Float16>;
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
