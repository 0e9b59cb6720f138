// Checks of input values that are in memory: the twin of `weft/_lazy/checks.py`, `begin`.
//
// A lookup by an index that a program has just made is the common case: the codes are computed at once, and nothing is
// in doubt. What cannot be checked yet, or is bad, is left to Python, as is whatever needs the user's line.

#include <algorithm>
#include <vector>

#include "checks.h"
#include "machine.h"
#include "objects.h"
#include "record.h"

namespace weft {
namespace {

// The inputs of a check, all of which must be in memory; false if one is not.
bool read_inputs(PyObject* inputs, std::vector<PyObject*>& contents) {
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
    PyObject* value = PyTuple_GET_ITEM(inputs, at);
    PyObject* aval = objects.value.aval.get(value);
    PyObject* content = objects.value.content.get(value);
    const bool is_array = Py_TYPE(content) == objects.ndarray && objects.aval.device.is(aval, objects.cpu);
    if (!is_array && !objects.aval.weak.is(aval, Py_True)) return false;
    contents.push_back(content);
  }
  return true;
}

// Whether all codes of a check are 0, by the program that its signature has; false, with or without an exception, else.
bool is_good(PyObject* output, PyObject* inputs) {
  PyObject* execution = objects.signature.execution.get(objects.output.signature.get(output));
  PyObject* machine = objects.execution.run.get(execution);
  std::vector<PyObject*> contents;
  if (!is_machine(machine) || !read_inputs(inputs, contents)) return false;
  PyObject* result = nullptr;
  const Ref held = Ref::to(machine);
  if (!run(machine, contents.data(), &result)) return false;
  const Ref codes(result);
  const auto* first = reinterpret_cast<const int64_t*>(PyArray_BYTES(as_array(result)));
  return PyArray_TYPE(as_array(result)) == NPY_INT64 &&
         std::all_of(first, first + PyArray_SIZE(as_array(result)), [](int64_t code) { return code == 0; });
}

// A check that has passed, and the doubt that refers to it.
Ref new_doubt(PyObject* code, PyObject* signature) {
  const CheckClass& c = objects.check;
  Ref check(c.type->tp_alloc(c.type, 0)), doubt(objects.doubt.type->tp_alloc(objects.doubt.type, 0));
  if (!check || !doubt) return Ref();
  c.code.init(check.get(), code);
  c.passed.init(check.get(), Py_True);
  c.failure.init(check.get(), Py_None);
  c.reported.init(check.get(), Py_False);
  c.signature.init(check.get(), signature);
  c.site.init(check.get(), objects.no_site);
  objects.doubt.check.init(doubt.get(), check.get());
  PyObject* reference = PyWeakref_NewRef(doubt.get(), nullptr);
  c.doubt.init_owned(check.get(), reference);
  return reference ? std::move(doubt) : Ref();
}

}  // namespace

Ref passed_doubt(PyObject* signature, PyObject* inputs, PyObject* state) {
  PyObject* requirement = objects.signature.requirement.get(signature);
  PyObject* precondition = objects.requirement.precondition.get(requirement);
  PyObject* recipe = objects.requirement.check.get(requirement);
  PyObject* pending = objects.ambient.pending.get(state);
  const PreconditionClass& p = objects.precondition;
  if (precondition == Py_None || recipe == Py_None || !objects.pending.branch.is(pending, Py_False)) return Ref();
  if (!p.on_host.is(precondition, Py_True) || p.waits.is(precondition, Py_True)) return Ref();

  PyObject *output = PyTuple_GET_ITEM(recipe, 0), *positions = PyTuple_GET_ITEM(recipe, 1);
  Ref read(PyTuple_New(PyTuple_GET_SIZE(positions)));
  if (!read) return Ref();
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(positions); ++at) {
    PyObject* value = PyTuple_GET_ITEM(inputs, PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, at)));
    PyTuple_SET_ITEM(read.get(), at, Py_NewRef(value));
  }
  if (!is_good(output, read.get())) return Ref();
  const Ref code = recorded_output(output, read.get(), state);
  return code ? new_doubt(code.get(), signature) : Ref();
}

}  // namespace weft
