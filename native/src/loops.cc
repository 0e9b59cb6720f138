// Loops over elements.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "loops.h"
#include "python.h"
#include "variant.h"

namespace weft {
namespace {

constexpr npy_intp kRepeated = 4096;  // bytes of a fill that are copied from

// One element, again and again. The stores of a loop are narrower than those of memcpy, which costs a third more.
template <typename T>
void fill(const char* source, char* target, npy_intp n) {
  const T value = *reinterpret_cast<const T*>(source);
  T* to = reinterpret_cast<T*>(target);
  const npy_intp first = std::min(n, kRepeated / static_cast<npy_intp>(sizeof(T)));
  for (npy_intp i = 0; i < first; ++i) to[i] = value;
  for (npy_intp i = first, more; i < n; i += more) {
    more = std::min(first, n - i);
    std::memcpy(to + i, to, static_cast<std::size_t>(more) * sizeof(T));
  }
}

template <typename T>
void copy(char** args, const npy_intp* count, const npy_intp* strides, void*) {
  const npy_intp n = *count, in = strides[0], out = strides[1];
  const char* source = args[0];
  char* target = args[1];
  if (in == sizeof(T) && out == sizeof(T)) {
    std::memcpy(target, source, static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  if (in == 0 && out == sizeof(T)) {
    fill<T>(source, target, n);
    return;
  }
  for (npy_intp i = 0; i < n; ++i, source += in, target += out) std::memcpy(target, source, sizeof(T));
}

using Wide = std::array<std::uint64_t, 2>;

// What `cast` is given: the function, of NumPy's or of the library that defines a type, for elements that follow each
// other.
struct Cast {
  PyArray_VectorUnaryFunc* function;
  npy_intp from, to;  // sizes of elements
};

void cast(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const Cast& with = *static_cast<const Cast*>(data);
  const npy_intp n = *count, in = strides[0], out = strides[1];
  char* source = args[0];
  char* target = args[1];
  if (in == with.from && out == with.to) {
    with.function(source, target, n, nullptr, nullptr);
    return;
  }
  for (npy_intp i = 0; i < n; ++i, source += in, target += out) with.function(source, target, 1, nullptr, nullptr);
}

// By its name, since the number of a type that a library defines depends on what was registered before.
bool is_bf16(PyArray_Descr* type) {
  return type->type_num >= NPY_USERDEF && std::strstr(type->typeobj->tp_name, "bfloat16") != nullptr;
}

void widen_bf16(char** args, const npy_intp* count, const npy_intp* strides, void*) {
  const npy_intp n = *count, in = strides[0], out = strides[1];
  if (in == 2 && out == 4) {
    const auto* source = reinterpret_cast<const std::uint16_t*>(args[0]);
    auto* target = reinterpret_cast<std::uint32_t*>(args[1]);
    for (npy_intp i = 0; i < n; ++i) target[i] = static_cast<std::uint32_t>(source[i]) << 16;
    return;
  }
  for (npy_intp i = 0; i < n; ++i) {
    const auto bits = *reinterpret_cast<const std::uint16_t*>(args[0] + i * in);
    *reinterpret_cast<std::uint32_t*>(args[1] + i * out) = static_cast<std::uint32_t>(bits) << 16;
  }
}

// To the nearest number, ties to even; NaN becomes one without payload, as ml_dtypes makes it.
inline std::uint16_t rounded(std::uint32_t bits) {
  const std::uint32_t near = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const std::uint32_t nan = ((bits >> 16) & 0x8000) | 0x7fc0;
  return static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : near);
}

void round_bf16(char** args, const npy_intp* count, const npy_intp* strides, void*) {
  const npy_intp n = *count, in = strides[0], out = strides[1];
  if (in == 4 && out == 2) {
    const auto* source = reinterpret_cast<const std::uint32_t*>(args[0]);
    auto* target = reinterpret_cast<std::uint16_t*>(args[1]);
    for (npy_intp i = 0; i < n; ++i) target[i] = rounded(source[i]);
    return;
  }
  for (npy_intp i = 0; i < n; ++i) {
    *reinterpret_cast<std::uint16_t*>(args[1] + i * out) =
        rounded(*reinterpret_cast<const std::uint32_t*>(args[0] + i * in));
  }
}

// The function that converts elements which follow each other, as libraries that define types register it.
PyArray_VectorUnaryFunc* cast_function(PyArray_Descr* from, int to) {
  const PyArray_ArrFuncs* functions = PyDataType_GetArrFuncs(from);
  if (to < NPY_NTYPES_ABI_COMPATIBLE) return functions->cast[to];
  if (!functions->castdict) return nullptr;
  const Ref key(PyLong_FromLong(to));
  PyObject* capsule = key ? PyDict_GetItemWithError(functions->castdict, key.get()) : nullptr;
  void* function = capsule ? PyCapsule_GetPointer(capsule, nullptr) : nullptr;
  PyErr_Clear();
  return reinterpret_cast<PyArray_VectorUnaryFunc*>(function);
}

// The kernel for elements of this size, if there is one.
auto chooser(npy_intp size) -> void (*)(const std::uint8_t*, const Sheet&) {
  const bool wide = variant() == kAvx512;
  if (variant() == kNone || (size != 4 && size != 8)) return nullptr;
  if (size == 4) return wide ? avx512::choose_32 : avx2::choose_32;
  return wide ? avx512::choose_64 : avx2::choose_64;
}

template <typename T>
void select(char** args, const npy_intp* count, const npy_intp* strides, void*) {
  constexpr npy_intp size = sizeof(T);
  const npy_intp n = *count;
  const char *which = args[0], *yes = args[1], *no = args[2];
  char* out = args[3];
  const bool moves[2] = {strides[1] == size, strides[2] == size};
  if (strides[0] == 1 && strides[3] == size && (moves[0] || strides[1] == 0) && (moves[1] || strides[2] == 0)) {
    static const auto kernel = chooser(size);
    if (kernel) {
      kernel(reinterpret_cast<const std::uint8_t*>(which), {1, n, yes, no, out, 0, 0, 0, moves[0], moves[1]});
      return;
    }
    T* to = reinterpret_cast<T*>(out);
    const T *a = reinterpret_cast<const T*>(yes), *b = reinterpret_cast<const T*>(no);
    for (npy_intp i = 0; i < n; ++i) to[i] = which[i] ? a[moves[0] ? i : 0] : b[moves[1] ? i : 0];
    return;
  }
  for (npy_intp i = 0; i < n; ++i) {
    std::memcpy(out + i * strides[3], which[i * strides[0]] ? yes + i * strides[1] : no + i * strides[2], sizeof(T));
  }
}

// Adds what the kernels have for a ufunc and numbers of this type.
Found with_rows(Found found, PyUFuncObject* ufunc, int type) {
  const bool is_single = type == NPY_FLOAT;
  if (variant() == kNone || ufunc->nargs != 3 || !(is_single || type == NPY_DOUBLE)) return found;
  const bool wide = variant() == kAvx512;
  const std::string_view name = ufunc->name;
  constexpr std::string_view kNames[] = {"add", "subtract", "multiply", "divide", "maximum", "minimum"};
  for (int at = 0; at < 6; ++at) {
    if (name != kNames[at]) continue;
    found.which = static_cast<Arithmetic>(at);
    found.rows = is_single ? (wide ? avx512::arithmetic_f32 : avx2::arithmetic_f32)
                           : (wide ? avx512::arithmetic_f64 : avx2::arithmetic_f64);
  }
  if (name == "maximum" || name == "minimum") {
    found.least = name == "minimum";
    found.extremes = is_single ? (wide ? avx512::row_extremes_f32 : avx2::row_extremes_f32)
                               : (wide ? avx512::row_extremes_f64 : avx2::row_extremes_f64);
  }
  return found;
}

}  // namespace

Found loop_of(PyUFuncObject* ufunc, PyArray_Descr* const* types) {
  for (int at = 0; at < ufunc->ntypes; ++at) {
    const char* wanted = ufunc->types + static_cast<std::ptrdiff_t>(at) * ufunc->nargs;
    bool fits = true;
    for (int i = 0; i < ufunc->nargs && fits; ++i) fits = wanted[i] == types[i]->type_num;
    const int type = types[0]->type_num;
    const bool is_one = fits && std::all_of(types, types + ufunc->nargs, [&](auto* t) { return t->type_num == type; });
    Found found{ufunc->functions[at], ufunc->data ? ufunc->data[at] : nullptr};
    if (fits) return is_one ? with_rows(std::move(found), ufunc, type) : found;
  }
  return {};
}

Found copy_of(PyArray_Descr* from, PyArray_Descr* to) {
  const npy_intp source = PyDataType_ELSIZE(from), target = PyDataType_ELSIZE(to);
  if (PyArray_EquivTypes(from, to)) {
    switch (source) {
      case 1:
        return {copy<std::uint8_t>};
      case 2:
        return {copy<std::uint16_t>};
      case 4:
        return {copy<std::uint32_t>};
      case 8:
        return {copy<std::uint64_t>};
      case 16:
        return {copy<Wide>};
      default:
        return {};
    }
  }
  if (is_bf16(from) && to->type_num == NPY_FLOAT) return {widen_bf16};
  if (is_bf16(to) && from->type_num == NPY_FLOAT) return {round_bf16};
  if (const LoopFunction known = number_cast(from->type_num, to->type_num)) return {known};
  if (PyTypeNum_ISCOMPLEX(from->type_num) && !PyTypeNum_ISCOMPLEX(to->type_num)) return {};
  PyArray_VectorUnaryFunc* function = cast_function(from, to->type_num);
  if (!function) return {};
  const auto with = std::make_shared<Cast>(function, source, target);
  return {cast, with.get(), with};
}

Found select_of(npy_intp itemsize) {
  switch (itemsize) {
    case 1:
      return {select<std::uint8_t>};
    case 2:
      return {select<std::uint16_t>};
    case 4:
      return {select<std::uint32_t>};
    case 8:
      return {select<std::uint64_t>};
    case 16:
      return {select<Wide>};
    default:
      return {};
  }
}

}  // namespace weft
