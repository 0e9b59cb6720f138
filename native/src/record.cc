// Recording: `weft/_lazy/record.py` and what leads there, for calls that need nothing special.
//
// Each function has a twin in Python, which is the reference, takes every call, and is what runs without the extension.
// A function here looks whether a call is one of the common ones (plain tensors and numbers, a known signature, no mode
// but grad), and hands all others to its twin. So nothing is decided here that is not decided there.

#include "objects.h"
#include "record.h"

namespace weft {

static PyObject* minus_one;
static PyObject* zero;
static long long recordings = 0;

long long next_time() { return ++recordings; }

Ref readable_state() {
  PyObject* state = nullptr;
  if (PyContextVar_Get(objects.context, nullptr, &state) < 0) PyErr_Clear();
  Ref result(state);
  // Of `OverriddenAmbient`, even reading is a signal, so its fields are not for this code.
  return state && Py_TYPE(state) == objects.ambient.type ? std::move(result) : Ref();
}

Ref simple_state() {
  Ref state = readable_state();
  return state && objects.ambient.simple.is(state.get(), Py_True) ? std::move(state) : Ref();
}

PyObject* value_of(PyObject* x) {
  const PyTypeObject* type = Py_TYPE(x);
  if (type != objects.tensor.type && type != objects.parameter) return nullptr;
  PyObject* value = objects.tensor.value.get(x);
  return value == Py_None ? nullptr : value;
}

Ref new_value(PyObject* origin, PyObject* inputs, PyObject* aval, PyObject* content, PyObject* role, long long time) {
  const ValueClass& c = objects.value;
  Ref value(c.type->tp_alloc(c.type, 0));
  if (!value) return value;
  PyObject* v = value.get();
  c.origin.init(v, origin);
  c.inputs.init(v, inputs);
  c.aval.init(v, aval);
  c.content.init(v, content);
  c.role.init(v, role);
  c.extras.init(v, objects.empty);
  c.num.init(v, minus_one);
  PyObject* number = time ? PyLong_FromLongLong(time) : Py_NewRef(zero);
  c.time.init_owned(v, number);
  return number ? std::move(value) : Ref();
}

Ref leaf(PyObject* aval, PyObject* content, long long time) {
  Ref value = new_value(Py_None, objects.empty, aval, content, Py_None, time);
  if (value) objects.value.owner.init(value.get(), Py_None);
  return value;
}

bool is_default_device() {
  const Ref device(PyObject_CallNoArgs(objects.default_device));
  return device.get() == Py_None;
}

Ref number(PyObject* x) {
  if (!PyFloat_CheckExact(x) && !PyLong_CheckExact(x) && !PyBool_Check(x) && !PyComplex_CheckExact(x)) return Ref();
  if (PyLong_CheckExact(x)) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(x, &overflow);
    if (overflow) return Ref();
  }
  PyObject* aval = PyDict_GetItem(objects.weak, reinterpret_cast<PyObject*>(Py_TYPE(x)));
  if (!aval) return Ref();
  return leaf(aval, x, 0);
}

// Whether gradients flow through an application to one of these inputs.
static bool has_role(PyObject* inputs) {
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
    if (!objects.value.role.is(PyTuple_GET_ITEM(inputs, at), Py_None)) return true;
  }
  return false;
}

// Whether one of these was made in inference mode.
static bool is_any_marked(PyObject* inputs) {
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
    if (objects.aval.inference.is(objects.value.aval.get(PyTuple_GET_ITEM(inputs, at)), Py_True)) return true;
  }
  return false;
}

Ref appended(PyObject* output, PyObject* inputs, bool taped, PyObject* pending) {
  const OutputClass& o = objects.output;
  PyObject* role = taped ? o.taped.get(output) : Py_None;
  Ref value = new_value(output, inputs, o.aval.get(output), objects.not_computed, role, ++recordings);
  if (!value || PyList_Append(pending, value.get()) < 0) return Ref();
  return value;
}

// Make room in the list of pending values, or show what it holds, if it is longer than its limit.
static bool keep_limit(PyObject* pending) {
  PyObject* limit = objects.pending.limit.get(pending);
  if (PyList_GET_SIZE(pending) <= PyLong_AsSsize_t(limit)) return !PyErr_Occurred();
  return static_cast<bool>(Ref(PyObject_CallOneArg(objects.at_limit, pending)));
}

Ref record_outputs(PyObject* signature, PyObject* inputs, PyObject* state) {
  if (objects.ambient.grad.is(state, Py_True) && is_any_marked(inputs)) return Ref();
  const bool is_checked = !objects.signature.requirement.is(signature, Py_None);
  Ref values = (is_checked ? checked_outputs : recorded_outputs)(signature, inputs, state);
  return values && keep_limit(objects.ambient.pending.get(state)) ? std::move(values) : Ref();
}

// The signature of a call on inputs of these types, borrowed; null, without an error, if it is not known.
static PyObject* signature_of(PyObject* call, PyObject* inputs) {
  const Py_ssize_t count = PyTuple_GET_SIZE(inputs);
  Ref avals(PyTuple_New(count));
  if (!avals) {
    PyErr_Clear();
    return nullptr;
  }
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyTuple_SET_ITEM(avals.get(), at, Py_NewRef(objects.value.aval.get(PyTuple_GET_ITEM(inputs, at))));
  }
  return PyDict_GetItem(objects.call.signatures.get(call), avals.get());
}

Ref try_apply(PyObject* call, PyObject* inputs) {
  Ref state = simple_state();
  if (!state) return Ref();
  Ref signature = Ref::to(signature_of(call, inputs));
  return signature ? record_outputs(signature.get(), inputs, state.get()) : Ref();
}

PyObject* wrapped(PyObject* value) {
  if (!objects.aval.owner.is(objects.value.aval.get(value), Py_None)) return PyObject_CallOneArg(objects.wrap, value);
  const TensorClass& c = objects.tensor;
  PyObject* tensor = c.type->tp_alloc(c.type, 0);
  if (!tensor) return nullptr;
  c.facts.init(tensor, objects.no_facts);
  c.value.init(tensor, value);
  return tensor;
}

PyObject* tensors_of(PyObject* op, PyObject* outputs, PyObject* values) {
  if (PyTuple_GET_SIZE(values) == 1 && PyObject_Not(outputs)) return wrapped(PyTuple_GET_ITEM(values, 0));
  Ref kind(PyObject_CallOneArg(objects.tuple_of, op));
  Ref tensors(PyTuple_New(PyTuple_GET_SIZE(values)));
  if (!kind || !tensors) return nullptr;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(values); ++at) {
    PyObject* tensor = wrapped(PyTuple_GET_ITEM(values, at));
    if (!tensor) return nullptr;
    PyTuple_SET_ITEM(tensors.get(), at, tensor);
  }
  return PyObject_CallObject(kind.get(), tensors.get());
}

namespace {

// --- functions of the module --------------------------------------------------------------------------------------

bool are_values(PyObject* inputs) {
  if (!PyTuple_Check(inputs)) return false;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
    if (Py_TYPE(PyTuple_GET_ITEM(inputs, at)) != objects.value.type) return false;
  }
  return true;
}

// record(signature, inputs, ambient, doubt=None)
PyObject* record(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) {
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (count == 3 && !names && Py_TYPE(args[0]) == objects.signature.type && Py_TYPE(args[2]) == objects.ambient.type &&
      objects.ambient.simple.is(args[2], Py_True) && are_values(args[1])) {
    if (Ref values = record_outputs(args[0], args[1], args[2])) return values.release();
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(objects.record, args, nargsf, names);
}

// apply(call, inputs)
PyObject* apply(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) {
  if (PyVectorcall_NARGS(nargsf) == 2 && !names && Py_TYPE(args[0]) == objects.call.type && are_values(args[1])) {
    if (Ref values = try_apply(args[0], args[1])) return values.release();
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(objects.apply, args, nargsf, names);
}

// wrap(value)
PyObject* wrap(PyObject*, PyObject* value) {
  if (Py_TYPE(value) == objects.value.type) return wrapped(value);
  return PyObject_CallOneArg(objects.wrap, value);
}

// operand(x, *, name="", op="")
PyObject* operand(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) {
  if (PyVectorcall_NARGS(nargsf) == 1) {
    if (PyObject* value = value_of(args[0])) {
      const Ref state = readable_state();
      if (state && objects.ambient.capture.is(state.get(), Py_None)) return Py_NewRef(value);
    }
  }
  return PyObject_Vectorcall(objects.operand, args, nargsf, names);
}

// finish(op, static, inputs, device=None): the tensors that a call of a row gives
PyObject* finish(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) {
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if ((count == 3 || count == 4) && !names && PyList_CheckExact(args[2])) {
    Ref key(PyTuple_Pack(3, args[0], args[1], count == 4 ? args[3] : Py_None));
    if (!key) return nullptr;
    Ref call = Ref::to(PyDict_GetItemWithError(objects.calls, key.get()));
    if (!call && PyErr_Occurred()) return nullptr;
    Ref inputs(PyList_AsTuple(args[2]));
    if (!inputs) return nullptr;
    if (call && are_values(inputs.get())) {
      Ref values = try_apply(call.get(), inputs.get());
      if (!values && PyErr_Occurred()) return nullptr;
      const Ref outputs(values ? PyObject_GetAttrString(args[0], "outputs") : nullptr);
      if (outputs) return tensors_of(args[0], outputs.get(), values.get());
      if (PyErr_Occurred()) return nullptr;
    }
  }
  return PyObject_Vectorcall(objects.finish, args, nargsf, names);
}

PyObject* tick(PyObject*, PyObject*) { return PyLong_FromLongLong(++recordings); }

// --- the common call: one or two operands -------------------------------------------------------------------------

struct Recorder {
  PyObject_HEAD PyObject* call;
  Py_ssize_t operands;
  bool takes_number;
  vectorcallfunc vectorcall;
};

// The tensor of a call on one or two operands; `None` if the call needs the general function.
PyObject* recorder_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const Recorder& recorder = *reinterpret_cast<Recorder*>(self);
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  PyObject* first = count == recorder.operands ? value_of(args[0]) : nullptr;
  if (!first) Py_RETURN_NONE;
  Ref inputs(PyTuple_New(count));
  if (!inputs) return nullptr;
  PyTuple_SET_ITEM(inputs.get(), 0, Py_NewRef(first));
  if (count == 2) {
    PyObject* second = Py_XNewRef(value_of(args[1]));
    if (!second && recorder.takes_number) second = number(args[1]).release();
    if (!second) {
      if (PyErr_Occurred()) return nullptr;
      Py_RETURN_NONE;
    }
    PyTuple_SET_ITEM(inputs.get(), 1, second);
  }
  Ref values = try_apply(recorder.call, inputs.get());
  if (values) return wrapped(PyTuple_GET_ITEM(values.get(), 0));
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* recorder_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"call", "operands", "takes_number", nullptr};
  PyObject* call;
  int operands, takes_number = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!i|p", const_cast<char**>(names), objects.call.type, &call,
                                   &operands, &takes_number)) {
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  Recorder& recorder = *reinterpret_cast<Recorder*>(self);
  recorder.call = Py_NewRef(call);
  recorder.operands = operands;
  recorder.takes_number = takes_number;
  recorder.vectorcall = recorder_call;
  return self;
}

void recorder_dealloc(PyObject* self) {
  Py_XDECREF(reinterpret_cast<Recorder*>(self)->call);
  Py_TYPE(self)->tp_free(self);
}

PyTypeObject recorder_type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "weft._native.Recorder",
    .tp_basicsize = sizeof(Recorder),
    .tp_dealloc = recorder_dealloc,
    .tp_vectorcall_offset = offsetof(Recorder, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Records a call of a row on one or two operands, or returns None.",
    .tp_new = recorder_new,
};

PyMethodDef functions[] = {
    {"bind", method(bind), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"record", method(record), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"apply", method(apply), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"operand", method(operand), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"finish", method(finish), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"wrap", wrap, METH_O, nullptr},
    {"tick", tick, METH_NOARGS, nullptr},
    {},
};

}  // namespace

Ref recorded_outputs(PyObject* signature, PyObject* inputs, PyObject* state) {
  const SignatureClass& s = objects.signature;
  PyObject* outputs = s.outputs.get(signature);
  PyObject* pending = objects.ambient.pending.get(state);
  const bool taped = objects.ambient.grad.is(state, Py_True) && has_role(inputs);
  const Py_ssize_t count = PyTuple_GET_SIZE(outputs);
  Ref held = Ref::to(inputs);
  if (count > 1 && Py_TYPE(inputs) != objects.shared) {
    held = Ref(PyObject_CallOneArg(reinterpret_cast<PyObject*>(objects.shared), inputs));
    if (!held) return Ref();
  }
  Ref values(PyTuple_New(count));
  if (!values) return Ref();
  for (Py_ssize_t at = 0; at < count; ++at) {
    Ref value = appended(PyTuple_GET_ITEM(outputs, at), held.get(), taped, pending);
    if (!value) return Ref();
    PyTuple_SET_ITEM(values.get(), at, value.release());
  }
  const Py_ssize_t main = PyLong_AsSsize_t(s.main.get(signature));
  if (main < count) {
    Ref extras(PyTuple_GetSlice(values.get(), main, count));
    if (!extras) return Ref();
    objects.value.extras.set(PyTuple_GET_ITEM(values.get(), 0), extras.get());
    values = Ref(PyTuple_GetSlice(values.get(), 0, main));
    if (!values) return Ref();
  }
  return values;
}

bool init_recorder(PyObject* module) {
  minus_one = PyLong_FromLong(-1);
  zero = PyLong_FromLong(0);
  objects.empty = PyTuple_New(0);
  return minus_one && zero && objects.empty && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddType(module, &recorder_type) == 0;
}

}  // namespace weft
