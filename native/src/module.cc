// The Python module `weft._native`.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace {

PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "weft._native",
    .m_doc = "Kernels for XLA on CPUs, and the machine of the first tier.",
    .m_size = -1,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&definition); }
