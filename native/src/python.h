// The C APIs of Python and NumPy, as all files of the extension that use them include them, and references that free
// themselves. `module.cc` defines `WEFT_IMPORTS_NUMPY`, since it fills NumPy's table for all files.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL weft_numpy_array
#define PY_UFUNC_UNIQUE_SYMBOL weft_numpy_ufunc
#ifndef WEFT_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#endif
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include <utility>

namespace weft {

// An exception of Python's is set; whoever was called by Python returns NULL.
struct PythonError {};

// A reference that is counted, or null.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(const Ref& other) : object_(Py_XNewRef(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  // A further reference to an object.
  static Ref to(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
  // What a function of Python's returned, or its exception.
  static Ref checked(PyObject* owned) {
    if (!owned) throw PythonError();
    return Ref(owned);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A function of any of Python's calling conventions, as tables of methods have it.
template <class Function>
PyCFunction method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

inline PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

}  // namespace weft
