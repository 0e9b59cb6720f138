// Loops over elements: NumPy's own, and those of the same form for copies, conversions and choices.
#pragma once

#include <memory>

#include "python.h"

namespace weft {

using LoopFunction = PyUFuncGenericFunction;

struct Found {
  LoopFunction function = nullptr;
  void* data = nullptr;
  std::shared_ptr<void> owner = nullptr;  // of `data`, where no ufunc is
};

// The loop of a ufunc for operands of exactly these types; its function is null if there is none.
Found loop_of(PyUFuncObject* ufunc, PyArray_Descr* const* types);

// The loop that copies elements of one type to another, rounding as NumPy does.
Found copy_of(PyArray_Descr* from, PyArray_Descr* to);

// The loop (condition, yes, no) -> result for elements of this size.
Found select_of(npy_intp itemsize);

}  // namespace weft
