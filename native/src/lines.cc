// Loops of which each element is a line of an array: the position of its largest or smallest element, what is combined
// along it, a copy of it, or a line that is combined with it.

#include <cstdint>
#include <cstring>
#include <memory>

#include "loops.h"
#include "python.h"

namespace weft {
namespace {

struct Search {
  PyArray_ArgFunc* function;
  npy_intp length;
};

// (first element of a line) -> position. The elements of a line follow each other.
void search(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const Search& with = *static_cast<const Search*>(data);
  for (npy_intp i = 0; i < *count; ++i) {
    with.function(args[0] + i * strides[0], with.length, reinterpret_cast<npy_intp*>(args[1] + i * strides[1]),
                  nullptr);
  }
}

struct Accumulation {
  Found loop, copy;
  npy_intp length, in, out;  // how far it is to the next element of a line
};

// (first element of a line) -> the first element of the line of results
void accumulate(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const Accumulation& with = *static_cast<const Accumulation*>(data);
  const npy_intp one = 1, rest = with.length - 1, copied[2] = {0, 0}, steps[3] = {with.out, with.in, with.out};
  for (npy_intp i = 0; i < *count; ++i) {
    char *source = args[0] + i * strides[0], *target = args[1] + i * strides[1];
    char* first[2] = {source, target};
    with.copy.function(first, &one, copied, with.copy.data);
    char* following[3] = {target, source + with.in, target + with.out};
    if (rest > 0) with.loop.function(following, &rest, steps, with.loop.data);
  }
}

struct Take {
  npy_intp bytes, step;
};

// (first element of an array, number of a row) -> the first element of a copy of that row
template <typename T>
void take(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const npy_intp step = static_cast<const Take*>(data)->step;
  for (npy_intp i = 0; i < *count; ++i) {
    const npy_intp row = *reinterpret_cast<const npy_intp*>(args[1] + i * strides[1]);
    *reinterpret_cast<T*>(args[2] + i * strides[2]) =
        *reinterpret_cast<const T*>(args[0] + i * strides[0] + row * step);
  }
}

void take_line(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const Take& with = *static_cast<const Take*>(data);
  for (npy_intp i = 0; i < *count; ++i) {
    const npy_intp row = *reinterpret_cast<const npy_intp*>(args[1] + i * strides[1]);
    std::memcpy(args[2] + i * strides[2], args[0] + i * strides[0] + row * with.step,
                static_cast<std::size_t>(with.bytes));
  }
}

struct Scatter {
  Found combine;
  npy_intp bytes, step, length, itemsize;
};

// (number of a row, whether it is one, first element of a line) -> the first element of an array, whose row is
// overwritten by the line, or combined with it.
void scatter(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const Scatter& with = *static_cast<const Scatter*>(data);
  const npy_intp steps[3] = {with.itemsize, with.itemsize, with.itemsize};
  for (npy_intp i = 0; i < *count; ++i) {
    if (!args[1][i * strides[1]]) continue;
    const npy_intp row = *reinterpret_cast<const npy_intp*>(args[0] + i * strides[0]);
    char *source = args[2] + i * strides[2], *target = args[3] + i * strides[3] + row * with.step;
    if (with.combine.function) {
      char* operands[3] = {target, source, target};
      with.combine.function(operands, &with.length, steps, with.combine.data);
    } else {
      std::memcpy(target, source, static_cast<std::size_t>(with.bytes));
    }
  }
}

}  // namespace

Found take_of(npy_intp bytes, npy_intp step) {
  const auto with = std::make_shared<Take>(bytes, step);
  const LoopFunction function = bytes == 4 ? take<std::uint32_t> : bytes == 8 ? take<std::uint64_t> : take_line;
  return {function, with.get(), with};
}

Found scatter_of(PyUFuncObject* ufunc, PyArray_Descr* type, npy_intp length, npy_intp step) {
  PyArray_Descr* const types[3] = {type, type, type};
  const npy_intp itemsize = PyDataType_ELSIZE(type);
  const Found combine = ufunc ? loop_of(ufunc, types) : Found();
  if (ufunc && !combine.function) return {};
  const auto with = std::make_shared<Scatter>(combine, length * itemsize, step, length, itemsize);
  return {scatter, with.get(), with};
}

Found search_of(PyArray_Descr* type, bool largest, npy_intp length) {
  const PyArray_ArrFuncs* functions = PyDataType_GetArrFuncs(type);
  PyArray_ArgFunc* function = largest ? functions->argmax : functions->argmin;
  if (!function || type->type_num >= NPY_USERDEF) return {};
  const auto with = std::make_shared<Search>(function, length);
  return {search, with.get(), with};
}

Found accumulation_of(PyUFuncObject* ufunc, PyArray_Descr* type, npy_intp length, npy_intp in, npy_intp out) {
  PyArray_Descr* const types[3] = {type, type, type};
  const Found loop = loop_of(ufunc, types), copy = copy_of(type, type);
  if (!loop.function || !copy.function) return {};
  const auto with = std::make_shared<Accumulation>(loop, copy, length, in, out);
  return {accumulate, with.get(), with};
}

}  // namespace weft
