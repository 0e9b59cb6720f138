// What other files use of recording.
#pragma once

#include "objects.h"

namespace weft {

// The values of the main outputs of an application, a tuple, appended to the list of pending values, whose limit is not
// looked at. Null with an exception.
Ref recorded_outputs(PyObject* signature, PyObject* inputs, PyObject* state);

}  // namespace weft
