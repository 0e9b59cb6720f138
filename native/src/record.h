// What other files use of recording.
#pragma once

#include "objects.h"

namespace weft {

// The ambient state of this thread or task, if there is one that may be read; else null, and no error.
Ref readable_state();

// The same, if recording in it does nothing but record.
Ref simple_state();

// The value of a plain tensor, borrowed; null, without an error, for what else it may be: a view to be read anew, too.
PyObject* value_of(PyObject* x);

// The values of the main outputs of an application, a tuple, appended to the list of pending values, whose limit is not
// looked at. Null with an exception.
Ref recorded_outputs(PyObject* signature, PyObject* inputs, PyObject* state);

// One output of an application, appended to that list.
Ref recorded_output(PyObject* output, PyObject* inputs, PyObject* state);

// A leaf of elements that are in memory, which was recorded now.
Ref leaf_value(PyObject* aval, PyObject* array);

// A new tensor with a value.
PyObject* wrapped(PyObject* value);

// A leaf for a Python number of an exact type that fits its element type; null, without an exception, for anything
// else.
Ref number_value(PyObject* x);

// The values of a call on plain values, in a simple state; null, without an exception, if it needs its twin.
Ref try_apply(PyObject* call, PyObject* inputs);

// What a call of a row gives: a tensor, or several in the tuple that the row has for them. `outputs` are their names.
PyObject* tensors_of(PyObject* op, PyObject* outputs, PyObject* values);

}  // namespace weft
