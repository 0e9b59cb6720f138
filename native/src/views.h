// Views of plain tensors: what `views.cc` makes, for the files that know which.
#pragma once

#include "record.h"

namespace weft {

// What a step does, where that is known.
enum class Row : unsigned char { kSelect, kSlice, kUnsqueeze, kAlias, kOther };

// A view operator that is about to be recorded.
struct Step {
  Ref call, others, signature;  // others: its inputs after the first; signature: filled in by `view_through`
  Row row = Row::kOther;
  Py_ssize_t dim = 0, start = 0, length = 0, step = 1;  // of a part
};

// Some steps, in order.
struct Steps {
  static constexpr Py_ssize_t kMost = 8;
  Step steps[kMost];
  Py_ssize_t count = 0;

  Step* begin() { return steps; }
  Step* end() { return steps + count; }
  const Step* begin() const { return steps; }
  const Step* end() const { return steps + count; }
};

// Index tensors: their values, and the dim that each takes, counted after the steps.
struct Indices {
  static constexpr Py_ssize_t kMost = 8;
  Ref values[kMost];
  Py_ssize_t dims[kMost];
  Py_ssize_t count = 0;

  Ref key() const;  // the dims, in a tuple
};

// A plain tensor with its value, and the tensor that owns its elements.
struct Source {
  PyObject* tensor = nullptr;  // borrowed
  Ref value, alias, owner;     // alias: or None

  // False, without an error, for what Python has to look at.
  bool find(PyObject* x);

  PyObject* aval() const { return objects.value.aval.get(value.get()); }
  bool is_view() const { return alias.get() != Py_None; }
  Py_ssize_t ndim() const { return PyTuple_GET_SIZE(sizes()); }
  bool has_size_of(const Source& other) const {
    return sizes() == other.sizes() || PyObject_RichCompareBool(sizes(), other.sizes(), Py_EQ) == 1;
  }
  Py_ssize_t size(Py_ssize_t dim) const { return PyLong_AsSsize_t(PyTuple_GET_ITEM(sizes(), dim)); }

 private:
  PyObject* sizes() const { return objects.aval.size.get(aval()); }
};

// The facts of a tensor, as an object of its own, borrowed; null with an exception.
PyObject* own_facts(PyObject* tensor);

// The steps of an index of ints, slices, `...` and None, and its tensors where there may be any. False for any other
// and for a wrong one, or with an exception.
bool steps_of(const Source& source, PyObject* index, Steps& steps, Indices* indices);

// The type of what steps lead to, borrowed; null, without an error, if it is not known. Finds their signatures.
PyObject* type_after(const Source& source, Steps& steps);

// The value that steps whose signatures have been found lead to; null with an exception.
Ref value_after(const Source& source, Steps& steps, PyObject* state);

// Steps as they stand in the path of a view.
Ref path_of(const Steps& steps);

// A view of a tensor through some steps. Null if Python has to make it, or with an exception.
PyObject* view_through(const Source& source, Steps& steps, PyObject* state);

// What a function returns that leaves a call to Python, unless there is an exception.
inline PyObject* none() {
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}
inline PyObject* or_none(PyObject* result) { return result ? result : none(); }

}  // namespace weft
