// New tensors of Python numbers: the twin of `tensor` (`weft/_tensor/convert.py`) for numbers, and for lists and tuples
// of them, nested to equal lengths, on the default device and with the types that Python's numbers have here.

#include <algorithm>
#include <vector>

#include "objects.h"
#include "record.h"

namespace weft {
namespace {

constexpr size_t kMostDims = 8;

PyObject* numpy_name;  // the attribute of an element type

// The classes of numbers, in the order of promotion.
enum Class { kNone, kBool, kInt, kFloat };

Class class_of(PyObject* x) {
  if (PyFloat_CheckExact(x)) return kFloat;
  if (PyLong_CheckExact(x)) return kInt;
  return PyBool_Check(x) ? kBool : kNone;
}

bool is_sequence(PyObject* x) { return PyList_CheckExact(x) || PyTuple_CheckExact(x); }

// Numbers in the order of an array's elements, and its shape.
class Numbers {
 public:
  // False if there is anything but numbers of one class, or ints beside floats, in sequences of equal lengths.
  bool read(PyObject* data) {
    for (PyObject* level = data; is_sequence(level); level = PySequence_Fast_GET_ITEM(level, 0)) {
      const Py_ssize_t length = PySequence_Fast_GET_SIZE(level);
      if (!length || shape.size() == kMostDims) return false;
      shape.push_back(length);
    }
    return collect(data, 0);
  }

  std::vector<npy_intp> shape;
  std::vector<PyObject*> items;  // borrowed
  Class all = kNone;

 private:
  bool collect(PyObject* x, size_t depth) {
    if (depth < shape.size()) {
      if (!is_sequence(x) || PySequence_Fast_GET_SIZE(x) != shape[depth]) return false;
      for (Py_ssize_t at = 0; at < shape[depth]; ++at) {
        if (!collect(PySequence_Fast_GET_ITEM(x, at), depth + 1)) return false;
      }
      return true;
    }
    const Class kind = class_of(x);
    if (kind == kNone || (all != kNone && kind != all && (kind == kBool || all == kBool))) return false;
    all = std::max(all, kind);
    items.push_back(x);
    return true;
  }
};

// The element type for numbers of a class, with a new reference, or the one that is wanted; null if it is not for this
// code, with or without an exception.
Ref dtype_of(Class all, PyObject* wanted) {
  if (wanted != Py_None) return Ref::to(wanted);
  if (all == kFloat) return Ref(PyObject_CallNoArgs(objects.default_dtype));
  return Ref::to(all == kInt ? objects.int64 : objects.bool_);
}

template <class T>
bool fill(const Numbers& numbers, char* data) {
  T* to = reinterpret_cast<T*>(data);
  for (PyObject* x : numbers.items) {
    if (PyFloat_CheckExact(x)) {
      *to++ = static_cast<T>(PyFloat_AS_DOUBLE(x));
      continue;
    }
    int overflow = 0;
    const long long whole = PyLong_AsLongLongAndOverflow(x, &overflow);
    if (overflow) return false;
    *to++ = static_cast<T>(whole);
  }
  return true;
}

// Write the numbers; false for types whose conversion needs checks.
bool fill(const Numbers& numbers, PyArrayObject* array) {
  char* data = PyArray_BYTES(array);
  switch (PyArray_TYPE(array)) {
    case NPY_FLOAT:
      return fill<float>(numbers, data);
    case NPY_DOUBLE:
      return fill<double>(numbers, data);
    case NPY_INT64:
      return numbers.all != kFloat && fill<int64_t>(numbers, data);
    case NPY_BOOL:
      return numbers.all == kBool && fill<npy_bool>(numbers, data);
    default:
      return false;
  }
}

// A new array of the numbers; null, with or without an exception, if Python is to make it.
Ref array_of(const Numbers& numbers, PyObject* dtype) {
  PyObject* descr = PyObject_GetAttr(dtype, numpy_name);
  if (!descr) return Ref();
  if (!PyArray_DescrCheck(descr)) {
    Py_DECREF(descr);
    return Ref();
  }
  Ref array(PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(descr),
                                 static_cast<int>(numbers.shape.size()), numbers.shape.data(), nullptr, nullptr, 0,
                                 nullptr));
  return array && fill(numbers, as_array(array.get())) ? std::move(array) : Ref();
}

// new_tensor(data, dtype): a new leaf, or None if it is for Python
PyObject* new_tensor(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "new_tensor: expected data and an element type or None");
    return nullptr;
  }
  Numbers numbers;
  const bool is_known = args[1] == Py_None || Py_TYPE(args[1]) == Py_TYPE(objects.int64);
  if (!is_known || !simple_state() || !numbers.read(args[0])) Py_RETURN_NONE;
  const Ref dtype = is_default_device() ? dtype_of(numbers.all, args[1]) : Ref();
  const Ref array = dtype ? array_of(numbers, dtype.get()) : Ref();
  const Ref shape(array ? PyArray_IntTupleFromIntp(static_cast<int>(numbers.shape.size()), numbers.shape.data())
                        : nullptr);
  const Ref key(shape ? PyTuple_Pack(4, shape.get(), dtype.get(), Py_False, objects.cpu) : nullptr);
  PyObject* aval = key ? PyDict_GetItemWithError(objects.avals, key.get()) : nullptr;
  if (aval) {
    const Ref value = leaf(aval, array.get(), next_time());
    return value ? wrapped(value.get()) : nullptr;
  }
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"new_tensor", method(new_tensor), METH_FASTCALL, nullptr},
    {},
};

}  // namespace

bool init_leaves(PyObject* module) {
  numpy_name = PyUnicode_InternFromString("numpy");
  return numpy_name && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
