// Arrays as machines take, make and return them.

#include <cstring>

#include "arrays.h"
#include "machine.h"
#include "python.h"

namespace weft {
namespace {

int ndim_of(const Register& shown) { return static_cast<int>(shown.shape.size()); }

// References to types are stolen by the functions that make arrays.
PyArray_Descr* new_type(const Register& shown) {
  Py_INCREF(shown.dtype.get());
  return shown.descr();
}

bool has_type(PyArrayObject* array, const Register& wanted) {
  PyArray_Descr* type = PyArray_DESCR(array);
  return (type == wanted.descr() || PyArray_EquivTypes(type, wanted.descr())) &&
         PyArray_NDIM(array) == ndim_of(wanted) &&
         PyArray_CompareLists(PyArray_DIMS(array), wanted.shape.data(), ndim_of(wanted));
}

bool refuse(PyObject* given, const Register& wanted) {
  const Ref shape(PyArray_IntTupleFromIntp(ndim_of(wanted), wanted.shape.data()));
  if (!shape) return false;
  if (PyArray_Check(given)) {
    PyArrayObject* array = as_array(given);
    const Ref other(PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array)));
    PyErr_Format(PyExc_TypeError, "machine: expected an array of %S %S, got one of %S %S", wanted.dtype.get(),
                 shape.get(), PyArray_DESCR(array), other.get());
  } else {
    PyErr_Format(PyExc_TypeError, "machine: expected an array of %S %S, got %.200s", wanted.dtype.get(), shape.get(),
                 Py_TYPE(given)->tp_name);
  }
  return false;
}

bool pack(PyObject* number, const Register& wanted, char* to) {
  if (PyFloat_CheckExact(number)) {
    const double value = PyFloat_AS_DOUBLE(number);
    if (wanted.descr()->type_num == NPY_DOUBLE) {
      std::memcpy(to, &value, sizeof value);
      return true;
    }
  } else if (PyLong_CheckExact(number) && wanted.descr()->type_num == NPY_LONG) {
    const long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred()) return false;
    std::memcpy(to, &value, sizeof value);
    return true;
  }
  return PyArray_Pack(wanted.descr(), to, number) == 0;
}

bool is_number(PyObject* given) {
  return PyFloat_Check(given) || PyLong_Check(given) || PyComplex_Check(given) || PyArray_CheckScalar(given);
}

}  // namespace

bool take(PyObject* given, const Register& wanted, bool is_object, char* number, char** data, PyObject** array) {
  if (PyArray_Check(given)) {
    PyArrayObject* as_given = as_array(given);
    if (!has_type(as_given, wanted)) return refuse(given, wanted);
    if (PyArray_CheckExact(given) && PyArray_ISCARRAY_RO(as_given)) {
      *array = Py_NewRef(given);
    } else {
      *array = PyArray_FromArray(as_given, new_type(wanted), NPY_ARRAY_CARRAY_RO | NPY_ARRAY_ENSUREARRAY);
      if (!*array) return false;
    }
    *data = PyArray_BYTES(as_array(*array));
    return true;
  }
  if (!is_number(given) || !wanted.shape.empty()) return refuse(given, wanted);
  if (is_object) {
    *array = make(wanted);
    if (!*array) return false;
    number = PyArray_BYTES(as_array(*array));
  }
  *data = number;
  return pack(given, wanted, number);
}

PyObject* make(const Register& like) {
  return PyArray_NewFromDescr(&PyArray_Type, new_type(like), ndim_of(like), like.shape.data(), nullptr, nullptr, 0,
                              nullptr);
}

PyObject* make_bytes(npy_intp bytes) { return PyArray_SimpleNew(1, &bytes, NPY_UINT8); }

PyObject* shown(const Register& shown, char* data, PyObject* owner) {
  PyObject* view = PyArray_NewFromDescr(&PyArray_Type, new_type(shown), ndim_of(shown), shown.shape.data(),
                                        shown.strides.data(), data, NPY_ARRAY_ALIGNED, nullptr);
  if (!view) return nullptr;
  if (PyArray_SetBaseObject(as_array(view), Py_NewRef(owner)) < 0) {
    Py_DECREF(view);
    return nullptr;
  }
  return view;
}

PyObject* compact(PyObject* array) {
  PyObject* base = PyArray_BASE(as_array(array));
  const bool is_part =
      base && PyArray_Check(base) && PyArray_NBYTES(as_array(base)) > 2 * PyArray_NBYTES(as_array(array));
  if (!is_part && PyArray_IS_C_CONTIGUOUS(as_array(array))) return Py_NewRef(array);
  return PyArray_NewCopy(as_array(array), NPY_CORDER);
}

PyObject* conformed(PyObject* result, const Register& wanted) {
  Ref array(PyArray_Check(result) ? Py_NewRef(result) : PyArray_FromAny(result, nullptr, 0, 0, 0, nullptr));
  if (!array) return nullptr;
  PyArrayObject* given = as_array(array.get());
  if (!has_type(given, wanted)) {
    refuse(array.get(), wanted);
    return nullptr;
  }
  bool fits = PyArray_ISALIGNED(given) && PyArray_ISNOTSWAPPED(given);
  for (int d = 0; d < PyArray_NDIM(given) && fits; ++d) {
    fits = wanted.shape[d] == 1 || PyArray_STRIDE(given, d) == wanted.strides[d];
  }
  if (fits || wanted.count() == 0) return array.release();
  Ref copy(PyArray_NewFromDescr(&PyArray_Type, new_type(wanted), ndim_of(wanted), wanted.shape.data(), nullptr, nullptr,
                                wanted.contiguous() ? 0 : NPY_ARRAY_F_CONTIGUOUS, nullptr));
  if (!copy || PyArray_CopyInto(as_array(copy.get()), given) < 0) return nullptr;
  return copy.release();
}

}  // namespace weft
