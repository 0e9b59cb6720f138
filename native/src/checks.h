// Checks of input values, as recording makes them.
#pragma once

#include "python.h"

namespace weft {

// The `Doubt` about an application that is about to be recorded, whose inputs are at hand and good; null, with or
// without an exception, if its check is for Python.
Ref passed_doubt(PyObject* signature, PyObject* inputs, PyObject* state);

}  // namespace weft
