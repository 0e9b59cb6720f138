// The Python module `weft._native`.

#define WEFT_IMPORTS_NUMPY
#include "machine.h"
#include "objects.h"
#include "python.h"
#include "threads.h"

namespace {

constexpr int kVersion = 4;  // of what the package in Python expects of the module (`weft/_lazy/native.py`)

PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "weft._native",
    .m_doc = "Kernels for XLA on CPUs, and the machine of the first tier.",
    .m_size = -1,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  if (PyArray_ImportNumPyAPI() < 0 || PyUFunc_ImportUFuncAPI() < 0) return nullptr;
  weft::Ref module(PyModule_Create(&definition));
  if (!module || !weft::init_threads(module.get()) || !weft::init_machine(module.get()) ||
      !weft::init_ufuncs(module.get()) || !weft::init_recorder(module.get()) || !weft::init_calls(module.get()) ||
      !weft::init_leaves(module.get()) || !weft::init_modules(module.get()) || !weft::init_views(module.get()) ||
      !weft::init_parts(module.get()) || !weft::init_writes(module.get()) || !weft::init_flush(module.get()) ||
      !weft::init_reading(module.get()) || !weft::init_backward(module.get()) ||
      PyModule_AddIntConstant(module.get(), "version", kVersion) < 0) {
    return nullptr;
  }
  return module.release();
}
