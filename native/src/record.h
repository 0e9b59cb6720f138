// What other files use of recording.
#pragma once

#include "objects.h"

namespace weft {

// The ambient state of this thread or task, if there is one that may be read; else null, and no error.
Ref readable_state();

// The ambient state, if recording in it does nothing but record; else null, and no error.
Ref simple_state();

// The value of a plain tensor, borrowed; null, without an error, for what else it may be: a view to be read anew, too.
PyObject* value_of(PyObject* x);

// A new value with these slots; `time` is the number of its recording, or 0 for a number.
Ref new_value(PyObject* origin, PyObject* inputs, PyObject* aval, PyObject* content, PyObject* role, long long time);

// The number of the next recording.
long long next_time();

// A leaf; `time` is the number of its recording, or 0 for a number.
Ref leaf(PyObject* aval, PyObject* content, long long time);

// Whether new tensors are made on the first CPU; false, too, with an exception.
bool is_default_device();

// A leaf for a Python number of an exact type that fits its element type; null, without an error, for anything else.
Ref number(PyObject* x);

// Append a new value of an output to the list of pending values.
Ref appended(PyObject* output, PyObject* inputs, bool taped, PyObject* pending);

// The values of an application in a simple state, with a check of its inputs if its signature asks for one, and then a
// look at the limit of the list. Null, without an error, if it needs its twin.
Ref record_outputs(PyObject* signature, PyObject* inputs, PyObject* state);

// The values of a call on plain values, in a simple state; null, without an error, if it needs its twin.
Ref try_apply(PyObject* call, PyObject* inputs);

// What a call of a row gives: a tensor, or several in the tuple that the row has for them. `outputs` are their names.
PyObject* tensors_of(PyObject* op, PyObject* outputs, PyObject* values);

// A new tensor with a value.
PyObject* wrapped(PyObject* value);

// The values of the main outputs of an application, a tuple, appended to the list of pending values, whose limit is not
// looked at. Null with an exception.
Ref recorded_outputs(PyObject* signature, PyObject* inputs, PyObject* state);

// The same for a signature with a requirement, which is checked. Null, without an error, if it needs its twin.
Ref checked_outputs(PyObject* signature, PyObject* inputs, PyObject* state);

}  // namespace weft
