// Loops of which each element is a line that is sorted. There is one stable order, so it is NumPy's.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>

#include "loops.h"
#include "python.h"

namespace weft {
namespace {

// NumPy's order: NaN comes last.
template <typename T>
inline bool less(T a, T b) {
  return a < b || (b != b && a == a);
}

// (first element of a line) -> the first element of the line in order. The elements of lines follow each other.
template <typename T>
void sort(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const npy_intp length = *static_cast<const npy_intp*>(data);
  for (npy_intp i = 0; i < *count; ++i) {
    const T* source = reinterpret_cast<const T*>(args[0] + i * strides[0]);
    T* target = reinterpret_cast<T*>(args[1] + i * strides[1]);
    std::copy_n(source, length, target);
    std::stable_sort(target, target + length, [](T a, T b) { return less(a, b); });
  }
}

// (first element of a line) -> the first one of the positions of its elements in order
template <typename T>
void argsort(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const npy_intp length = *static_cast<const npy_intp*>(data);
  for (npy_intp i = 0; i < *count; ++i) {
    const T* source = reinterpret_cast<const T*>(args[0] + i * strides[0]);
    auto* target = reinterpret_cast<npy_intp*>(args[1] + i * strides[1]);
    std::iota(target, target + length, npy_intp{0});
    std::stable_sort(target, target + length, [source](npy_intp a, npy_intp b) { return less(source[a], source[b]); });
  }
}

template <typename T>
LoopFunction chosen(bool positions) {
  return positions ? argsort<T> : sort<T>;
}

LoopFunction function_for(int type, bool positions) {
  switch (type) {
    case NPY_BOOL:
    case NPY_UINT8:
      return chosen<std::uint8_t>(positions);
    case NPY_INT8:
      return chosen<std::int8_t>(positions);
    case NPY_INT16:
      return chosen<std::int16_t>(positions);
    case NPY_UINT16:
      return chosen<std::uint16_t>(positions);
    case NPY_INT32:
      return chosen<std::int32_t>(positions);
    case NPY_UINT32:
      return chosen<std::uint32_t>(positions);
    case NPY_INT64:
      return chosen<std::int64_t>(positions);
    case NPY_UINT64:
      return chosen<std::uint64_t>(positions);
    case NPY_FLOAT:
      return chosen<float>(positions);
    case NPY_DOUBLE:
      return chosen<double>(positions);
    default:
      return nullptr;
  }
}

}  // namespace

Found sort_of(PyArray_Descr* type, bool positions, npy_intp length) {
  const LoopFunction function = function_for(type->type_num, positions);
  if (!function) return {};
  const auto with = std::make_shared<npy_intp>(length);
  return {function, with.get(), with};
}

}  // namespace weft
