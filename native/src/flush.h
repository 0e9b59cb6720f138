// What other files use of flushing.
#pragma once

#include "python.h"

namespace weft {

// Compute the living values of a list by a program that is interpreted, if nobody looks on. False, with or without an
// exception, if they are in the list as before.
bool flush_small(PyObject* pending);

}  // namespace weft
