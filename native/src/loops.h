// Loops over elements: NumPy's own, and those of the same form for copies, conversions and choices.
#pragma once

#include <memory>

#include "elements.h"
#include "python.h"

namespace weft {

using LoopFunction = PyUFuncGenericFunction;

struct Found {
  LoopFunction function = nullptr;
  void* data = nullptr;
  std::shared_ptr<void> owner = nullptr;  // of `data`, where no ufunc is
  // The same for many rows at once, or null: only for elements that follow each other, or operands of one element.
  // False if NumPy's loop has to decide.
  bool (*rows)(Arithmetic, const Sheet&) = nullptr;
  Arithmetic which = Arithmetic::add;
  // The largest or the least of rows, or false.
  bool (*extremes)(bool least, const Sheet&) = nullptr;
  bool least = false;
};

// The loop of a ufunc for operands of exactly these types; its function is null if there is none.
Found loop_of(PyUFuncObject* ufunc, PyArray_Descr* const* types);

// The loop that copies elements of one type to another, rounding as NumPy does.
Found copy_of(PyArray_Descr* from, PyArray_Descr* to);

// The loop that converts numbers of NumPy's own types; null for those that it has not.
LoopFunction number_cast(int from, int to);

// The loop (first element of a line) -> the position of its largest or smallest element, for lines without gaps.
Found search_of(PyArray_Descr* type, bool largest, npy_intp length);

// The loop (first element of a line) -> the first element of the line of what is combined so far, for lines in which it
// is so many bytes to the next element.
Found accumulation_of(PyUFuncObject* ufunc, PyArray_Descr* type, npy_intp length, npy_intp in, npy_intp out);

// The loop (first element of an array, number of a row) -> the first element of a copy, for rows of so many bytes,
// whose first elements are `step` bytes apart.
Found take_of(npy_intp bytes, npy_intp step);

// The loop (number of a row, whether it is one, first element of a line) -> the first element of an array. A row of
// `length` elements is combined with the line by a ufunc, or overwritten if that is null, one after the other.
Found scatter_of(PyUFuncObject* ufunc, PyArray_Descr* type, npy_intp length, npy_intp step);

// The loop (first element of a line) -> the first element of the line in a stable order, or of the positions of its
// elements in that, for lines without gaps.
Found sort_of(PyArray_Descr* type, bool positions, npy_intp length);

// The loop (key) -> numbers of this size that it draws, without gaps.
Found draw_of(npy_intp itemsize);

// The loop (two words of a key, two of a counter) -> two words that are random.
Found hash_found();

// The loop (condition, yes, no) -> result for elements of this size.
Found select_of(npy_intp itemsize);

// Adds functions like NumPy's to the module, where there are kernels for this CPU: `matmul`, and those of numbers.
bool init_matmul(PyObject* module);
bool init_ufuncs(PyObject* module);

}  // namespace weft
