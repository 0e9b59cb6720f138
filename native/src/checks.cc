// Checks of input values: the twin of `begin` (`weft/_lazy/checks.py`), for checks that pass at once, and for those of
// values that are not computed yet.

#include "record.h"

namespace weft {
namespace {

// Whether the codes of a check that has been run are all 0.
bool has_passed(PyObject* results) {
  if (!PyList_CheckExact(results) || PyList_GET_SIZE(results) != 1) return false;
  PyObject* codes = PyList_GET_ITEM(results, 0);
  if (Py_TYPE(codes) != objects.ndarray) return false;
  PyArrayObject* array = as_array(codes);
  if (PyArray_TYPE(array) != NPY_INT64 || !PyArray_IS_C_CONTIGUOUS(array)) return false;
  const npy_int64* code = static_cast<const npy_int64*>(PyArray_DATA(array));
  for (npy_intp at = 0; at < PyArray_SIZE(array); ++at) {
    if (code[at]) return false;
  }
  return true;
}

enum class Outcome { kPassed, kOpen, kUnknown };

// What is known of a check: it is run now if what it reads is in memory. Unknown is what Python has to look at, which
// is all that fails; also with an exception.
Outcome outcome(PyObject* checker, PyObject* values) {
  const ValueClass& v = objects.value;
  const Py_ssize_t count = PyTuple_GET_SIZE(values);
  Ref arrays(PyList_New(count));
  for (Py_ssize_t at = 0; arrays && at < count; ++at) {
    PyObject* value = PyTuple_GET_ITEM(values, at);
    PyObject* content = v.content.get(value);
    if (objects.aval.weak.is(v.aval.get(value), Py_True)) {  // a number, as the divisor in `x % 2`
      PyList_SET_ITEM(arrays.get(), at, Py_NewRef(content));
      continue;
    }
    if (!objects.aval.device.is(v.aval.get(value), objects.cpu)) return Outcome::kUnknown;
    if (content == objects.not_computed) return Outcome::kOpen;
    if (Py_TYPE(content) != objects.ndarray) return Outcome::kUnknown;
    PyList_SET_ITEM(arrays.get(), at, Py_NewRef(content));
  }
  PyObject* run = objects.execution.run.get(objects.signature.execution.get(checker));
  if (!arrays || run == Py_None) return Outcome::kUnknown;
  Ref results(PyObject_CallOneArg(run, arrays.get()));
  return results && has_passed(results.get()) ? Outcome::kPassed : Outcome::kUnknown;
}

// The inputs at some positions.
Ref picked(PyObject* inputs, PyObject* positions) {
  Ref values(PyTuple_New(PyTuple_GET_SIZE(positions)));
  for (Py_ssize_t at = 0; values && at < PyTuple_GET_SIZE(positions); ++at) {
    const Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, at));
    PyTuple_SET_ITEM(values.get(), at, Py_NewRef(PyTuple_GET_ITEM(inputs, position)));
  }
  return values;
}

// The `Doubt` about an application that is about to be recorded; null if Python has to look, or with an exception.
Ref begin(PyObject* signature, PyObject* inputs, PyObject* state) {
  PyObject* requirement = objects.signature.requirement.get(signature);
  PyObject* precondition = objects.requirement.precondition.get(requirement);
  if (precondition == Py_None || !objects.precondition.waits.is(precondition, Py_False)) return Ref();
  Ref recipe = Ref::to(objects.requirement.check.get(requirement));
  if (recipe.get() == Py_None) return Ref();
  PyObject* output = PyTuple_GET_ITEM(recipe.get(), 0);
  Ref values = picked(inputs, PyTuple_GET_ITEM(recipe.get(), 1));
  if (!values) return Ref();

  Ref pending = Ref::to(objects.ambient.pending.get(state));
  Outcome known = Outcome::kOpen;
  if (objects.precondition.on_host.is(precondition, Py_True) && objects.pending.branch.is(pending.get(), Py_False)) {
    known = outcome(objects.output.signature.get(output), values.get());
  }
  if (known == Outcome::kUnknown) return Ref();
  const bool passed = known == Outcome::kPassed;
  Ref code = appended(output, values.get(), false, pending.get());
  Ref site = passed ? Ref::to(objects.no_site) : Ref(code ? PyObject_CallNoArgs(objects.user_site) : nullptr);
  const CheckClass& c = objects.check;
  Ref check(code && site ? c.type->tp_alloc(c.type, 0) : nullptr);
  if (!check) return Ref();
  c.code.init(check.get(), code.get());
  c.passed.init(check.get(), passed ? Py_True : Py_False);
  c.failure.init(check.get(), Py_None);
  c.reported.init(check.get(), Py_False);
  c.signature.init(check.get(), signature);
  c.site.init(check.get(), site.get());
  if (!passed && PyList_Append(objects.pending.checks.get(pending.get()), check.get()) < 0) return Ref();
  Ref doubt(objects.doubt.type->tp_alloc(objects.doubt.type, 0));
  if (!doubt) return doubt;
  objects.doubt.check.init(doubt.get(), check.get());
  Ref reference(PyWeakref_NewRef(doubt.get(), nullptr));
  if (!reference) return reference;
  c.doubt.init(check.get(), reference.get());
  return doubt;
}

}  // namespace

Ref checked_outputs(PyObject* signature, PyObject* inputs, PyObject* state) {
  Ref doubt = begin(signature, inputs, state);
  Ref values = doubt ? recorded_outputs(signature, inputs, state) : Ref();
  if (!values) return values;
  const ValueClass& v = objects.value;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(values.get()); ++at) {
    PyObject* value = PyTuple_GET_ITEM(values.get(), at);
    v.doubt.set(value, doubt.get());
    PyObject* extras = v.extras.get(value);
    for (Py_ssize_t extra = 0; extra < PyTuple_GET_SIZE(extras); ++extra) {
      v.doubt.set(PyTuple_GET_ITEM(extras, extra), doubt.get());
    }
  }
  return values;
}

}  // namespace weft
