// Reading: the elements of a tensor on the host, and its only one as a number.
//
// The twins of `host` and `item` (`weft/_tensor/state.py`, `tensor.py`) for plain tensors whose elements are in memory,
// or come there by a small flush. Where something else is to be done (a capture, checks to be read, an array of XLA's),
// that is left to the functions in Python.

#include "flush.h"
#include "objects.h"
#include "record.h"

namespace weft {
namespace {

// Whether somebody is to be shown what is in a list, or it has been long.
bool is_shown(PyObject* pending) {
  return PyObject_RichCompareBool(objects.pending.limit.get(pending), objects.least_limit, Py_EQ) != 1;
}

// The array that a plain tensor's value has once it is computed; null, with or without an exception, if the twin is to
// read it.
Ref array_of(PyObject* tensor) {
  PyObject* borrowed = value_of(tensor);
  if (!borrowed) return Ref();
  const Ref value = Ref::to(borrowed), state = readable_state();
  if (!state || !objects.ambient.capture.is(state.get(), Py_None)) return Ref();
  const PendingClass& p = objects.pending;
  const Ref pending = Ref::to(objects.ambient.pending.get(state.get()));
  if (objects.value.content.is(value.get(), objects.not_computed)) {
    if (is_shown(pending.get()) || !flush_small(pending.get())) return Ref();
    if (PyList_GET_SIZE(p.checks.get(pending.get())) && !Ref(PyObject_CallOneArg(objects.report, pending.get()))) {
      return Ref();
    }
  }
  if (PyList_GET_SIZE(p.unread.get(pending.get()))) return Ref();
  PyObject* content = objects.value.content.get(value.get());
  if (Py_TYPE(content) != objects.ndarray) return Ref();
  return objects.aval.device.is(objects.value.aval.get(value.get()), objects.cpu) ? Ref::to(content) : Ref();
}

// host(tensor, decides=False): the elements as a read-only array
PyObject* host(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count == 1 || count == 2) {
    Ref array = array_of(args[0]);
    if (array) {
      PyArray_CLEARFLAGS(as_array(array.get()), NPY_ARRAY_WRITEABLE);
      return array.release();
    }
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(objects.host, args, count, nullptr);
}

// item(tensor, decides=False): the only element as a Python number
PyObject* item(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count == 1 || count == 2) {
    const Ref array = array_of(args[0]);
    PyArrayObject* elements = as_array(array.get());
    if (array && PyArray_SIZE(elements) == 1) return PyArray_GETITEM(elements, PyArray_BYTES(elements));
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(objects.item, args, count, nullptr);
}

PyMethodDef functions[] = {
    {"host", method(host), METH_FASTCALL, nullptr},
    {"item", method(item), METH_FASTCALL, nullptr},
    {},
};

}  // namespace

bool init_reading(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace weft
