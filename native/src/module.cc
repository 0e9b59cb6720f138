// The Python module `weft._native`.

#include "objects.h"

namespace {

PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "weft._native",
    .m_doc = "Kernels for XLA on CPUs, and the machine of the first tier.",
    .m_size = -1,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  weft::Ref module(PyModule_Create(&definition));
  if (!module || !weft::init_recorder(module.get()) || !weft::init_flush(module.get())) return nullptr;
  return module.release();
}
