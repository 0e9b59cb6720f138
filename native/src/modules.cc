// Attributes of modules: the twin of `Module.__getattr__` (`weft/nn/_module.py`).
//
// Parameters, buffers and submodules are in tables, not in a module's `__dict__`. Python finds them by a search that
// fails, an exception whose text is written and thrown away, and a call of `__getattr__`: 0.6 microseconds for each
// `self.weight`, more than it takes to record a product. Here the search fails without an exception.

#include "objects.h"

namespace weft {
namespace {

PyObject* tables[3];  // the names of the attributes that are tables, in the order of the search

// What an object has by itself; null without an exception if there is nothing of this name.
PyObject* own_attribute(PyObject* self, PyObject* name) {
  // Not in the stable interface, but what Cython has used for the same from its beginnings.
  return _PyObject_GenericGetAttrWithDict(self, name, nullptr, /*suppress=*/1);
}

// What is in a table of a module; null, with or without an exception, if it has none of this name.
PyObject* registered(PyObject* self, PyObject* table_name, PyObject* name) {
  const Ref table(own_attribute(self, table_name));
  if (!table || !PyDict_Check(table.get())) return nullptr;
  return Py_XNewRef(PyDict_GetItemWithError(table.get(), name));
}

PyObject* attribute(PyObject* self, PyObject* name) {
  if (PyObject* own = own_attribute(self, name)) return own;
  if (PyErr_Occurred()) return nullptr;
  const int hooked = PyObject_IsTrue(objects.module_hooks);
  if (hooked < 0) return nullptr;
  for (PyObject* table : tables) {
    if (hooked) break;
    if (PyObject* found = registered(self, table, name)) return found;
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_CallFunctionObjArgs(objects.module_attribute, self, name, nullptr);
}

// look_up(cls): let attributes of this class's instances be found here. Python undoes that if the class gets another
// `__getattr__` or `__getattribute__`.
PyObject* look_up(PyObject*, PyObject* cls) {
  if (!PyType_Check(cls)) {
    PyErr_SetString(PyExc_TypeError, "look_up: expected a class");
    return nullptr;
  }
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  type->tp_getattro = attribute;
  PyType_Modified(type);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {{"look_up", look_up, METH_O, nullptr}, {}};

}  // namespace

bool init_modules(PyObject* module) {
  tables[0] = PyUnicode_InternFromString("_parameters");
  tables[1] = PyUnicode_InternFromString("_buffers");
  tables[2] = PyUnicode_InternFromString("_modules");
  return tables[0] && tables[1] && tables[2] && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
