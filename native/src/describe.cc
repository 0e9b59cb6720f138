// Fragments, from what Python describes.

#include "machine.h"
#include "python.h"

namespace weft {
namespace {

struct FragmentObject {
  PyObject_HEAD Fragment* fragment;
};

// A list or a tuple of a description, for as long as it is read.
class Items {
 public:
  explicit Items(PyObject* sequence) : fast_(Ref::checked(PySequence_Fast(sequence, "expected a sequence"))) {}
  Py_ssize_t size() const { return PySequence_Fast_GET_SIZE(fast_.get()); }
  PyObject* operator[](Py_ssize_t at) const { return PySequence_Fast_GET_ITEM(fast_.get(), at); }

 private:
  Ref fast_;
};

npy_intp number_from(PyObject* object) {
  const npy_intp number = PyNumber_AsSsize_t(object, PyExc_OverflowError);
  if (number == -1 && PyErr_Occurred()) throw PythonError();
  return number;
}

Sizes sizes_from(PyObject* sequence) {
  const Items items(sequence);
  Sizes sizes(items.size());
  for (Py_ssize_t i = 0; i < items.size(); ++i) sizes[i] = number_from(items[i]);
  return sizes;
}

Step step_from(PyObject* description) {
  PyObject *payload, *outs, *ins;
  int kind, flags;
  if (!PyArg_ParseTuple(description, "iOiOO", &kind, &payload, &flags, &outs, &ins)) throw PythonError();
  return {static_cast<Kind>(kind), Ref::to(payload), flags, numbers_from(outs), numbers_from(ins)};
}

Fragment fragment_from(PyObject* args) {
  PyObject *buffers, *registers, *outputs, *steps;
  Fragment fragment;
  if (!PyArg_ParseTuple(args, "OOiOO", &buffers, &registers, &fragment.inputs, &outputs, &steps)) throw PythonError();
  const Items given(buffers);
  for (Py_ssize_t i = 0; i < given.size(); ++i) {
    const bool is_constant = PyArray_Check(given[i]);
    fragment.constants.push_back(is_constant ? Ref::to(given[i]) : Ref());
    fragment.sizes.push_back(is_constant ? PyArray_NBYTES(as_array(given[i])) : number_from(given[i]));
  }
  const Items shown(registers);
  for (Py_ssize_t i = 0; i < shown.size(); ++i) fragment.registers.push_back(register_from(shown[i]));
  fragment.outputs = numbers_from(outputs);
  const Items listed(steps);
  for (Py_ssize_t i = 0; i < listed.size(); ++i) fragment.steps.push_back(step_from(listed[i]));
  return fragment;
}

PyObject* fragment_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  try {
    reinterpret_cast<FragmentObject*>(self)->fragment = new Fragment(fragment_from(args));
    return self;
  } catch (const PythonError&) {
    Py_DECREF(self);
    return nullptr;
  }
}

void fragment_dealloc(PyObject* self) {
  delete reinterpret_cast<FragmentObject*>(self)->fragment;
  Py_TYPE(self)->tp_free(self);
}

PyTypeObject fragment_type = {
    .ob_base = {PyObject_HEAD_INIT(nullptr) 0},
    .tp_name = "weft._native.Fragment",
    .tp_basicsize = sizeof(FragmentObject),
    .tp_dealloc = fragment_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Steps that compute an application: (buffers, registers, inputs, outputs, steps).",
    .tp_new = fragment_new,
};

}  // namespace

std::vector<int> numbers_from(PyObject* sequence) {
  const Items items(sequence);
  std::vector<int> numbers(items.size());
  for (Py_ssize_t i = 0; i < items.size(); ++i) numbers[i] = static_cast<int>(number_from(items[i]));
  return numbers;
}

Register register_from(PyObject* description) {
  PyObject *shape, *strides, *dtype;
  Register result;
  if (!PyArg_ParseTuple(description, "inOOO!", &result.buffer, &result.offset, &shape, &strides, &PyArrayDescr_Type,
                        &dtype)) {
    throw PythonError();
  }
  result.shape = sizes_from(shape);
  result.strides = sizes_from(strides);
  result.dtype = Ref::to(dtype);
  return result;
}

const Fragment* fragment_of(PyObject* object) {
  if (!PyObject_TypeCheck(object, &fragment_type)) {
    PyErr_Format(PyExc_TypeError, "expected a Fragment, got %.200s", Py_TYPE(object)->tp_name);
    throw PythonError();
  }
  return reinterpret_cast<FragmentObject*>(object)->fragment;
}

bool add_fragment_type(PyObject* module) { return PyModule_AddType(module, &fragment_type) == 0; }

}  // namespace weft
