// Loops of which each element is a line of an array: the position of its largest or smallest element, what is combined
// along it, or a copy of it.

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

// (first element of an array, number of a row) -> the first element of a copy of that row
void take(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const npy_intp bytes = *static_cast<const npy_intp*>(data);
  for (npy_intp i = 0; i < *count; ++i) {
    const npy_intp row = *reinterpret_cast<const npy_intp*>(args[1] + i * strides[1]);
    std::memcpy(args[2] + i * strides[2], args[0] + row * bytes, static_cast<std::size_t>(bytes));
  }
}

}  // namespace

Found take_of(npy_intp bytes) {
  const auto with = std::make_shared<npy_intp>(bytes);
  return {take, with.get(), with};
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
