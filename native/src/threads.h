// Threads of this process that help the machine. XLA has a pool of its own, which only its programs can use.
#pragma once

#include "kernels.h"
#include "python.h"

namespace weft {

// The threads for so many operations on numbers; the caller alone where fewer would have each of them too little to do.
Pool threads_for(double operations);

// Adds `set_threads` to the module.
bool init_threads(PyObject* module);

}  // namespace weft
