// Arrays as machines take, make and return them.
#pragma once

#include "machine.h"
#include "python.h"

namespace weft {

constexpr npy_intp kNumberBytes = 16;  // of one element of any type

// An input as an array with the type and shape of a register, whose elements follow each other; null with an exception
// of Python's if it has others. The elements of a number are written to `number` unless `is_object`, with no array.
bool take(PyObject* given, const Register& wanted, bool is_object, char* number, char** data, PyObject** array);

// A new array for a buffer.
PyObject* make(const Register& like);
PyObject* make_bytes(npy_intp bytes);

// What shows a register's elements in an array's memory. It cannot be written to.
PyObject* shown(const Register& shown, char* data, PyObject* owner);

// A result that shares memory with what others have: dense, and keeping no larger array alive.
PyObject* compact(PyObject* array);

// What a call has returned, with the type and layout of a register.
PyObject* conformed(PyObject* result, const Register& wanted);

}  // namespace weft
