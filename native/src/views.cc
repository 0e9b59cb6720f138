// Views: twins of `_finish_view` (`weft/_tensor/codegen.py`) and `make_view` (`weft/_tensor/view.py`).
//
// As in `record.cc`, a call with anything special is handed to Python before anything has been recorded.

#include "views.h"

namespace weft {

// --- what is viewed -----------------------------------------------------------------------------------------------

static PyObject* alias_of(PyObject* tensor) { return objects.facts.alias.get(objects.tensor.facts.get(tensor)); }

bool Source::find(PyObject* x) {
  tensor = x;
  value = Ref::to(value_of(x));
  if (!value || Py_TYPE(value.get()) != objects.value.type) return false;
  const AvalClass& a = objects.aval;
  if (!a.owner.is(aval(), Py_None) || a.inference.is(aval(), Py_True) || a.external.is(aval(), Py_True)) return false;
  PyObject* base = x;
  PyObject* here = alias_of(x);
  alias = Ref::to(here);
  for (; here != Py_None; here = alias_of(base)) {
    if (Py_TYPE(here) != objects.alias.type) return false;
    base = objects.alias.base.get(here);
  }
  owner = Ref::to(base);
  if (base == x) return true;
  PyObject* content = objects.tensor.value.get(base);  // of external memory, whose views are read anew
  return content && (content == Py_None || a.external.is(objects.value.aval.get(content), Py_False));
}

PyObject* own_facts(PyObject* tensor) {
  PyObject* facts = objects.tensor.facts.get(tensor);
  if (facts != objects.no_facts) return facts;
  const FactsClass& f = objects.facts;
  Ref own(f.type->tp_alloc(f.type, 0));
  if (!own) return nullptr;
  for (const Slot* slot :
       {&f.address, &f.alias, &f.overwritten, &f.resized, &f.role, &f.storage, &f.views, &f.writes}) {
    slot->init(own.get(), slot->get(objects.no_facts));
  }
  objects.tensor.facts.set(tensor, own.get());
  return own.get();
}

PyObject* type_after(const Source& source, Steps& steps) {
  PyObject* aval = source.aval();
  for (Step& step : steps) {
    const Py_ssize_t count = PyTuple_GET_SIZE(step.others.get());
    Ref avals(PyTuple_New(1 + count));
    if (!avals) return nullptr;
    PyTuple_SET_ITEM(avals.get(), 0, Py_NewRef(aval));
    for (Py_ssize_t at = 0; at < count; ++at) {
      PyObject* other = objects.value.aval.get(PyTuple_GET_ITEM(step.others.get(), at));
      PyTuple_SET_ITEM(avals.get(), 1 + at, Py_NewRef(other));
    }
    step.signature = Ref::to(PyDict_GetItemWithError(objects.call.signatures.get(step.call.get()), avals.get()));
    if (!step.signature) return nullptr;
    const SignatureClass& s = objects.signature;
    PyObject* signature = step.signature.get();
    if (!s.requirement.is(signature, Py_None) || PyTuple_GET_SIZE(s.outputs.get(signature)) != 1) return nullptr;
    aval = objects.output.aval.get(PyTuple_GET_ITEM(s.outputs.get(signature), 0));
    if (!objects.aval.owner.is(aval, Py_None)) return nullptr;
  }
  return aval;
}

Ref path_of(const Steps& steps) {
  Ref path(PyTuple_New(steps.count));
  Py_ssize_t at = 0;
  for (const Step& step : steps) {
    PyObject* pair = path ? PyTuple_Pack(2, step.call.get(), step.others.get()) : nullptr;
    if (!pair) return Ref();
    PyTuple_SET_ITEM(path.get(), at++, pair);
  }
  return path;
}

namespace {

// --- values -------------------------------------------------------------------------------------------------------

// A part of an array as a view of it.
PyObject* part_of(PyObject* whole, const Step& part) {
  PyArrayObject* array = as_array(whole);
  npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
  int count = 0;
  for (int dim = 0; dim < PyArray_NDIM(array); ++dim) {
    const npy_intp stride = PyArray_STRIDE(array, dim);
    if (dim == part.dim) {
      if (part.row == Row::kSelect) continue;
      dims[count] = part.length;
      strides[count++] = stride * part.step;
    } else {
      dims[count] = PyArray_DIM(array, dim);
      strides[count++] = stride;
    }
  }
  char* first = PyArray_BYTES(array) + part.start * PyArray_STRIDE(array, static_cast<int>(part.dim));
  PyArray_Descr* type = PyArray_DESCR(array);
  Py_INCREF(type);
  const int flags = PyArray_FLAGS(array) & (NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED);
  PyObject* view = PyArray_NewFromDescr(&PyArray_Type, type, count, dims, strides, first, flags, nullptr);
  if (view && PyArray_SetBaseObject(as_array(view), Py_NewRef(whole)) < 0) Py_CLEAR(view);
  return view;
}

// Whether no one is shown what is recorded.
bool is_unwatched(PyObject* pending) {
  PyObject *limit = objects.pending.limit.get(pending), *room = objects.pending.room.get(pending);
  return limit == room || PyLong_AsLong(limit) == PyLong_AsLong(room);
}

// `shown_in_memory`: the result of a step as a leaf that shows a part of its input's array; null for one to be
// recorded, or with an exception.
Ref shown(const Step& step, PyObject* value, PyObject* state) {
  const ValueClass& v = objects.value;
  PyObject* array = v.content.get(value);
  if (Py_TYPE(array) != objects.ndarray || !v.role.is(value, Py_None)) return Ref();
  PyObject* host = objects.execution.host.get(objects.signature.execution.get(step.signature.get()));
  if (host == Py_None || !is_unwatched(objects.ambient.pending.get(state))) return Ref();
  Ref held = Ref::to(array);
  Ref part;
  if (step.row != Row::kOther) {
    part = Ref(part_of(array, step));
  } else {
    const Py_ssize_t count = PyTuple_GET_SIZE(step.others.get());
    if (count > 1) return Ref();
    PyObject* other = count ? PyTuple_GET_ITEM(step.others.get(), 0) : nullptr;
    if (other && !objects.aval.weak.is(v.aval.get(other), Py_True)) return Ref();
    PyObject* args[] = {array, other ? v.content.get(other) : nullptr};
    part = Ref(PyObject_Vectorcall(host, args, 1 + count, nullptr));
  }
  if (!part) return Ref();
  PyObject* output = PyTuple_GET_ITEM(objects.signature.outputs.get(step.signature.get()), 0);
  return leaf(objects.output.aval.get(output), part.get(), next_time());
}

// The value of a step; null with an exception.
Ref value_of_step(const Step& step, PyObject* value, PyObject* state) {
  Ref part = shown(step, value, state);
  if (part || PyErr_Occurred()) return part;
  const Py_ssize_t count = PyTuple_GET_SIZE(step.others.get());
  Ref inputs(PyTuple_New(1 + count));
  if (!inputs) return Ref();
  PyTuple_SET_ITEM(inputs.get(), 0, Py_NewRef(value));
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyTuple_SET_ITEM(inputs.get(), 1 + at, Py_NewRef(PyTuple_GET_ITEM(step.others.get(), at)));
  }
  Ref values = record_outputs(step.signature.get(), inputs.get(), state);
  return values ? Ref::to(PyTuple_GET_ITEM(values.get(), 0)) : Ref();
}

// --- aliases ------------------------------------------------------------------------------------------------------

// Forget the views that are no more.
bool forget_dead(PyObject* views) {
  Ref living(PyList_New(0));
  if (!living) return false;
  for (Py_ssize_t at = 0; at < PyList_GET_SIZE(views); ++at) {
    PyObject* view = PyList_GET_ITEM(views, at);
    if (PyWeakref_GetObject(view) != Py_None && PyList_Append(living.get(), view) < 0) return false;
  }
  return PyList_SetSlice(views, 0, PyList_GET_SIZE(views), living.get()) == 0;
}

// `attach`
bool attach(PyObject* view, PyObject* base, PyObject* steps, PyObject* tracked) {
  const AliasClass& a = objects.alias;
  Ref alias(a.type->tp_alloc(a.type, 0));
  if (!alias) return false;
  a.base.init(alias.get(), base);
  a.steps.init(alias.get(), steps);
  a.tracked.init(alias.get(), tracked);
  a.hidden.init(alias.get(), Py_False);
  a.place.init(alias.get(), Py_None);
  a.layout.init(alias.get(), Py_None);
  PyObject* facts = own_facts(view);
  if (!facts) return false;
  objects.facts.alias.set(facts, alias.get());
  facts = own_facts(base);
  Ref reference(facts ? PyWeakref_NewRef(view, nullptr) : nullptr);
  if (!reference) return false;
  const Slot& slot = objects.facts.views;
  if (slot.is(facts, Py_None)) {
    Ref list(PyList_New(0));
    if (!list) return false;
    if (slot.is(facts, Py_None)) slot.set(facts, list.get());  // a finalizer may have made another view
  }
  Ref views = Ref::to(slot.get(facts));
  const Py_ssize_t count = PyList_GET_SIZE(views.get());
  if (PyList_Append(views.get(), reference.get()) < 0) return false;
  return count < 16 || count & (count - 1) || forget_dead(views.get());  // as in Python, at powers of two
}

Ref joined(PyObject* first, PyObject* second) { return Ref(PySequence_Concat(first, second)); }

// `path_of`
Ref path_of(const Source& source) {
  Ref path = Ref::to(objects.empty);
  for (PyObject* alias = source.alias.get(); path && alias != Py_None;) {
    PyObject* steps = objects.alias.steps.get(alias);
    path = PyTuple_GET_SIZE(path.get()) ? joined(steps, path.get()) : Ref::to(steps);
    alias = alias_of(objects.alias.base.get(alias));
  }
  return path;
}

// Whether the result of a call is a copy, since no strides give it: 1 or 0; -1 if it is not known, or with an
// exception.
int is_copied(const Source& source, PyObject* call) {
  if (!source.is_view() || objects.call.by_layout.is(call, Py_False)) return 0;
  Ref path = path_of(source);
  const Py_ssize_t count = path ? PyTuple_GET_SIZE(path.get()) : 0;
  Ref key(path ? PyTuple_New(2 + count) : nullptr);
  PyObject* storage = objects.tensor.value.get(source.owner.get());
  if (!key || storage == Py_None) return -1;
  PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(objects.value.aval.get(storage)));
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyObject* pair = PyTuple_GET_ITEM(path.get(), at);
    PyTuple_SET_ITEM(key.get(), 1 + at, Py_NewRef(PyTuple_GET_ITEM(pair, 0)));
  }
  PyTuple_SET_ITEM(key.get(), 1 + count, Py_NewRef(call));
  PyObject* known = PyDict_GetItemWithError(objects.copied, key.get());
  return known ? known == Py_True : -1;
}

}  // namespace

Ref value_after(const Source& source, Steps& steps, PyObject* state) {
  Ref value = source.value;
  for (const Step& step : steps) {
    if (value) value = value_of_step(step, value.get(), state);
  }
  return value;
}

PyObject* view_through(const Source& source, Steps& steps, PyObject* state) {
  const bool grad = objects.ambient.grad.is(state, Py_True);
  if (!type_after(source, steps)) return nullptr;
  for (const Step& step : steps) {
    if (grad && !objects.call.derives.is(step.call.get(), Py_True)) return nullptr;
  }
  Ref path, base;
  if (!grad) {
    path = path_of(source);
    base = source.owner;
  } else if (!source.is_view() || !objects.alias.tracked.is(source.alias.get(), Py_True)) {
    path = Ref::to(objects.empty);
    base = Ref::to(source.tensor);
  } else {
    path = Ref::to(objects.alias.steps.get(source.alias.get()));
    base = Ref::to(objects.alias.base.get(source.alias.get()));
  }
  Ref added = path ? path_of(steps) : Ref();
  if (added) path = PyTuple_GET_SIZE(path.get()) ? joined(path.get(), added.get()) : added;
  if (!added || !path) return nullptr;
  Ref value = value_after(source, steps, state);
  Ref view(value ? wrapped(value.get()) : nullptr);
  if (!view || !attach(view.get(), base.get(), path.get(), grad ? Py_True : Py_False)) return nullptr;
  return view.release();
}

namespace {

// The result of one view operator: a view, or a copy where no strides give it.
PyObject* view_by(const Source& source, PyObject* call, Ref others, PyObject* state) {
  const int copied = is_copied(source, call);
  if (copied < 0) return nullptr;
  Steps steps;
  steps.count = 1;
  steps.steps[0].call = Ref::to(call);
  steps.steps[0].others = std::move(others);
  if (!copied) return view_through(source, steps, state);
  if (!type_after(source, steps)) return nullptr;
  Ref value = value_of_step(steps.steps[0], source.value.get(), state);
  return value ? wrapped(value.get()) : nullptr;
}

// finish_view(op, static, inputs, source): the tensor that a call of a view row gives
PyObject* finish_view(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) {
  Source source;
  if (PyVectorcall_NARGS(nargsf) == 4 && !names && PyList_CheckExact(args[2]) && PyList_GET_SIZE(args[2]) &&
      source.find(args[3]) && PyList_GET_ITEM(args[2], 0) == source.value.get()) {
    Ref key(PyTuple_Pack(3, args[0], args[1], Py_None));
    if (!key) return nullptr;
    Ref call = Ref::to(PyDict_GetItemWithError(objects.calls, key.get()));
    Ref inputs(PyList_AsTuple(args[2]));
    Ref others(inputs ? PyTuple_GetSlice(inputs.get(), 1, PyTuple_GET_SIZE(inputs.get())) : nullptr);
    bool are_values = static_cast<bool>(others);
    for (Py_ssize_t at = 0; are_values && at < PyTuple_GET_SIZE(others.get()); ++at) {
      are_values = Py_TYPE(PyTuple_GET_ITEM(others.get(), at)) == objects.value.type;
    }
    const Ref state = simple_state();
    if (call && state && are_values) {
      if (PyObject* view = view_by(source, call.get(), others, state.get())) return view;
    }
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(objects.finish_view, args, nargsf, names);
}

// detach(x): None if Python has to do it
PyObject* detach(PyObject*, PyObject* x) {
  Source source;
  const Ref state = source.find(x) ? simple_state() : Ref();
  if (!state) return none();
  const ValueClass& v = objects.value;
  Ref content = Ref::to(v.content.get(source.value.get()));
  Ref value;
  if (content.get() == objects.not_computed) {
    Ref inputs(PyTuple_Pack(1, source.value.get()));
    Ref values = inputs ? try_apply(objects.detach_call, inputs.get()) : Ref();
    if (values) value = Ref::to(PyTuple_GET_ITEM(values.get(), 0));
  } else if (!PyObject_TypeCheck(content.get(), objects.stand_in)) {  // as `Value.leaf` does
    value = leaf(source.aval(), content.get(), next_time());
    PyObject* owner = v.origin.is(source.value.get(), Py_None) ? v.owner.get(source.value.get()) : nullptr;
    if (value && owner) v.owner.set(value.get(), owner);
  }
  Ref path = value ? path_of(source) : Ref();
  Ref view(path ? wrapped(value.get()) : nullptr);
  if (!view || !attach(view.get(), source.owner.get(), path.get(), Py_False)) return none();
  return view.release();
}

// --- the common call of a view row --------------------------------------------------------------------------------

struct ViewRecorder {
  PyObject_HEAD PyObject* calls;  // arguments after the first -> `Call`
  bool variadic;
  vectorcallfunc vectorcall;
};

constexpr Py_ssize_t kMostKnown = 4096;

// Whether equal arguments mean the same: ints, None, and tuples of ints.
bool is_exact(PyObject* x, bool within = false) {
  if (PyLong_CheckExact(x)) return true;
  if (within || !(PyTuple_CheckExact(x) || Py_TYPE(x) == objects.size)) return !within && x == Py_None;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(x); ++at) {
    if (!is_exact(PyTuple_GET_ITEM(x, at), true)) return false;
  }
  return true;
}

// The arguments of a call as a key; null, without an error, if equal ones may mean something else.
Ref key_of(const ViewRecorder& recorder, PyObject* const* args, Py_ssize_t count) {
  Ref key;
  if (recorder.variadic) {  // the sizes in a tuple; options after it are at their defaults
    for (Py_ssize_t at = 1; at < count; ++at) {
      if (args[at] != Py_None) return Ref();
    }
    if (count < 1 || !PyTuple_CheckExact(args[0])) return Ref();
    key = Ref::to(args[0]);
  } else {
    key = Ref(PyTuple_New(count));
    for (Py_ssize_t at = 0; key && at < count; ++at) PyTuple_SET_ITEM(key.get(), at, Py_NewRef(args[at]));
    if (!key) return key;
  }
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(key.get()); ++at) {
    if (!is_exact(PyTuple_GET_ITEM(key.get(), at))) return Ref();
  }
  return key;
}

PyObject* view_recorder_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const ViewRecorder& recorder = *reinterpret_cast<ViewRecorder*>(self);
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  Source source;
  if (!count || !source.find(args[0])) return none();
  const Ref state = simple_state();
  const Ref key = state ? key_of(recorder, args + 1, count - 1) : Ref();
  Ref call = key ? Ref::to(PyDict_GetItemWithError(recorder.calls, key.get())) : Ref();
  if (!call) return none();
  return or_none(view_by(source, call.get(), Ref::to(objects.empty), state.get()));
}

// learn(call, *arguments)
PyObject* view_recorder_learn(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  const ViewRecorder& recorder = *reinterpret_cast<ViewRecorder*>(self);
  const Ref key = count ? key_of(recorder, args + 1, count - 1) : Ref();
  if (!key) return none();
  if (PyDict_GET_SIZE(recorder.calls) >= kMostKnown) PyDict_Clear(recorder.calls);
  if (PyDict_SetItem(recorder.calls, key.get(), args[0]) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* view_recorder_new(PyTypeObject* type, PyObject* args, PyObject*) {
  int variadic;
  if (!PyArg_ParseTuple(args, "p", &variadic)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  ViewRecorder& recorder = *reinterpret_cast<ViewRecorder*>(self);
  recorder.calls = PyDict_New();
  recorder.variadic = variadic;
  recorder.vectorcall = view_recorder_call;
  if (!recorder.calls) Py_CLEAR(self);
  return self;
}

void view_recorder_dealloc(PyObject* self) {
  Py_XDECREF(reinterpret_cast<ViewRecorder*>(self)->calls);
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef view_recorder_methods[] = {
    {"learn", method(view_recorder_learn), METH_FASTCALL, nullptr},
    {},
};

PyTypeObject view_recorder_type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "weft._native.ViewRecorder",
    .tp_basicsize = sizeof(ViewRecorder),
    .tp_dealloc = view_recorder_dealloc,
    .tp_vectorcall_offset = offsetof(ViewRecorder, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Records a call of a view row with arguments that it has learnt, or returns None.",
    .tp_methods = view_recorder_methods,
    .tp_new = view_recorder_new,
};

PyMethodDef functions[] = {
    {"finish_view", method(finish_view), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"detach", detach, METH_O, nullptr},
    {},
};

}  // namespace

bool init_views(PyObject* module) {
  return PyModule_AddType(module, &view_recorder_type) == 0 && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
