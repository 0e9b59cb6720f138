// Writes: twins of `write` and `replace_value` (`weft/_tensor/view.py`), of the end of in-place forms
// (`weft/_tensor/inplace.py`), and of `_assigned` (`weft/_tensor/subscript.py`).
//
// They take values of exactly the type of what is written to. Whatever is recorded here before it turns out that Python
// has to do the write is used by nobody.

#include <cmath>

#include "views.h"

namespace weft {
namespace {

// The ambient state, if recording does nothing but record, and no function is transformed that must not write.
Ref writing_state() {
  Ref state = simple_state();
  return state && objects.ambient.context.is(state.get(), objects.no_context) ? state : Ref();
}

PyObject* facts_of(PyObject* tensor) { return objects.tensor.facts.get(tensor); }
PyObject* role_of(const Ref& value) { return objects.value.role.get(value.get()); }

// `mark_views_stale`
bool mark_views_stale(PyObject* base) {
  const FactsClass& f = objects.facts;
  Ref views = Ref::to(f.views.get(facts_of(base)));
  if (views.get() == Py_None) return true;
  bool living = false;
  for (Py_ssize_t at = 0; at < PyList_GET_SIZE(views.get()); ++at) {
    Ref view = Ref::to(PyWeakref_GetObject(PyList_GET_ITEM(views.get(), at)));
    if (view.get() == Py_None) continue;
    living = true;
    PyObject* value = objects.tensor.value.get(view.get());
    if (!value || value == Py_None) continue;
    PyObject* alias = f.alias.get(facts_of(view.get()));
    if (alias == Py_None || !objects.alias.base.is(alias, base)) continue;
    const bool has_place = objects.alias.tracked.is(alias, Py_True) || !objects.alias.place.is(alias, Py_None);
    if (objects.aval.external.is(objects.value.aval.get(value), Py_True) || !f.role.is(facts_of(view.get()), Py_None) ||
        !(has_place || objects.value.role.is(value, Py_None))) {
      return static_cast<bool>(Ref(PyObject_CallOneArg(objects.mark_views_stale, base)));
    }
    objects.tensor.value.set(view.get(), Py_None);
    if (!mark_views_stale(view.get())) return false;
  }
  if (!living) f.views.set(facts_of(base), Py_None);
  return true;
}

// `set_value`, for contents that are not external.
bool set_value(PyObject* base, const Ref& old, PyObject* value) {
  const FactsClass& f = objects.facts;
  PyObject* facts = own_facts(base);
  if (!facts) return false;
  if (!objects.value.content.is(old.get(), objects.not_computed)) {
    f.overwritten.set(facts, objects.value.time.get(old.get()));
  }
  Ref writes(PyLong_FromLongLong(PyLong_AsLongLong(f.writes.get(facts)) + 1));
  if (!writes) return false;
  f.writes.set(facts, writes.get());
  objects.tensor.value.set(base, value);
  return mark_views_stale(base);
}

// `put`, for a tensor that owns its storage. False if Python has to do it, or with an exception.
bool put(const Source& base, PyObject* value, bool grad) {
  PyObject* role = role_of(base.value);
  if (grad && !objects.facts.role.is(facts_of(base.tensor), Py_None)) return false;  // its gradient may be retained
  if (role != Py_None) {
    const bool is_leaf = Py_TYPE(role) == objects.leaf;
    // A leaf's place in the graph is kept outside of it, and in grad mode what is inside replaces what was inside.
    if (grad ? is_leaf || objects.value.role.is(value, Py_None) : !is_leaf) return false;
    if (!grad) objects.value.role.set(value, role);
  }
  return set_value(base.tensor, base.value, value);
}

// `written`, where the signatures are known: null if one is not, or with an exception.
Ref written(PyObject* steps, const Ref& base, const Ref& value) {
  const Py_ssize_t count = PyTuple_GET_SIZE(steps);
  Ref chain(PyTuple_New(count));
  Ref here = base;
  const auto applied = [](PyObject* call, PyObject* first, PyObject* second, PyObject* others) {
    const Py_ssize_t leading = second ? 2 : 1, rest = PyTuple_GET_SIZE(others);
    Ref inputs(PyTuple_New(leading + rest));
    if (!inputs) return Ref();
    PyTuple_SET_ITEM(inputs.get(), 0, Py_NewRef(first));
    if (second) PyTuple_SET_ITEM(inputs.get(), 1, Py_NewRef(second));
    for (Py_ssize_t at = 0; at < rest; ++at) {
      PyTuple_SET_ITEM(inputs.get(), leading + at, Py_NewRef(PyTuple_GET_ITEM(others, at)));
    }
    Ref values = try_apply(call, inputs.get());
    return values ? Ref::to(PyTuple_GET_ITEM(values.get(), 0)) : Ref();
  };
  for (Py_ssize_t at = 0; chain && at < count; ++at) {
    PyTuple_SET_ITEM(chain.get(), at, Py_NewRef(here.get()));
    PyObject* step = PyTuple_GET_ITEM(steps, at);
    if (at + 1 < count) here = applied(PyTuple_GET_ITEM(step, 0), here.get(), nullptr, PyTuple_GET_ITEM(step, 1));
    if (!here) return Ref();
  }
  Ref result = chain ? value : Ref();
  for (Py_ssize_t at = count; result && at--;) {
    PyObject* step = PyTuple_GET_ITEM(steps, at);
    PyObject* call = objects.call.write.get(PyTuple_GET_ITEM(step, 0));
    if (call == Py_None) return Ref();
    result = applied(call, PyTuple_GET_ITEM(chain.get(), at), result.get(), PyTuple_GET_ITEM(step, 1));
  }
  return result;
}

// Whether no step shows an element in several places.
bool is_one_to_one(PyObject* steps) {
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(steps); ++at) {
    PyObject* call = PyTuple_GET_ITEM(PyTuple_GET_ITEM(steps, at), 0);
    if (objects.call.spreads.is(call, Py_True)) return false;
  }
  return true;
}

// `write` for a view of a tensor that owns its storage. False if Python has to do it, or with an exception.
bool write_view(const Source& target, const Ref& value, bool grad) {
  Ref alias = target.alias;
  Source base;
  if (!objects.alias.base.is(alias.get(), target.owner.get()) || !base.find(target.owner.get())) return false;
  const bool is_tracked = objects.alias.tracked.is(alias.get(), Py_True);
  const bool is_outside = role_of(value) == Py_None && role_of(target.value) == Py_None;
  if (!(is_outside && role_of(base.value) == Py_None)) {
    // What has a place of its own keeps it, and a leaf is not written to.
    if (!is_tracked || !grad || Py_TYPE(role_of(target.value)) == objects.leaf) return false;
    if (Py_TYPE(role_of(base.value)) == objects.leaf) return false;
  }
  Ref steps = Ref::to(objects.alias.steps.get(alias.get()));
  if (!PyTuple_GET_SIZE(steps.get()) || !is_one_to_one(steps.get())) return false;
  Ref new_base = written(steps.get(), base.value, value);
  if (!new_base || !put(base, new_base.get(), grad)) return false;
  if (is_outside) objects.tensor.value.set(target.tensor, value.get());  // else its place follows from that of the base
  return true;
}

// Write a value of the same type. False if Python has to do it, or with an exception.
bool write_to(PyObject* tensor, PyObject* new_value) {
  Source target;
  if (Py_TYPE(new_value) != objects.value.type || !target.find(tensor)) return false;
  if (objects.value.aval.get(new_value) != target.aval()) return false;
  const Ref state = writing_state();
  if (!state) return false;
  const bool grad = objects.ambient.grad.is(state.get(), Py_True);
  const Ref value = Ref::to(new_value);
  return target.is_view() ? write_view(target, value, grad) : put(target, new_value, grad);
}

// --- parts --------------------------------------------------------------------------------------------------------

// What fills a type with a number: (call, least, most, whether it takes fractions), if the number fits the type; null
// if Python has to look, or with an exception.
Ref fill_of(PyObject* aval, PyObject* x) {
  Ref fill = Ref::to(PyDict_GetItemWithError(objects.fills, aval));
  const bool is_float = PyFloat_CheckExact(x);
  if (!fill || !(is_float || PyLong_CheckExact(x) || PyBool_Check(x))) return Ref();
  const double size = PyFloat_AsDouble(x), exact = 9007199254740992;  // 2 ** 53
  if (size == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return Ref();
  }
  if (is_float ? PyTuple_GET_ITEM(fill.get(), 3) != Py_True : std::fabs(size) > exact) return Ref();
  const double least = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(fill.get(), 1));
  const double most = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(fill.get(), 2));
  return std::isfinite(size) && !(least <= size && size <= most) ? Ref() : fill;
}

Ref first_of(Ref values) { return values ? Ref::to(PyTuple_GET_ITEM(values.get(), 0)) : Ref(); }

// A value of a type that has this number everywhere; null if Python has to make it, or with an exception.
Ref filled(PyObject* aval, PyObject* x) {
  const Ref fill = fill_of(aval, x);
  const Ref operand = fill ? number(x) : Ref();
  const Ref inputs(operand ? PyTuple_Pack(1, operand.get()) : nullptr);
  return inputs ? first_of(try_apply(PyTuple_GET_ITEM(fill.get(), 0), inputs.get())) : Ref();
}

// Write a number where a mask of the tensor's size is true. False if Python has to do it, or with an exception.
bool fill_masked(const Source& target, const Source& mask, PyObject* x) {
  const Ref value = fill_of(target.aval(), x) ? number(x) : Ref();
  const Ref inputs(value ? PyTuple_Pack(3, target.value.get(), mask.value.get(), value.get()) : nullptr);
  const Ref result = inputs ? first_of(try_apply(objects.masked_fill_call, inputs.get())) : Ref();
  return result && write_to(target.tensor, result.get());
}

// Write at index tensors for some dims. False if Python has to do it, or with an exception.
bool put_at(const Source& target, const Indices& indices, PyObject* values) {
  // Index tensors may share elements with a tensor of integers.
  const AvalClass& a = objects.aval;
  PyObject* type = a.dtype.get(target.aval());
  if (type == objects.int64 || type == objects.int32) return false;
  const Ref dims = indices.key();
  const Ref entry = dims ? Ref::to(PyDict_GetItemWithError(objects.index_calls, dims.get())) : Ref();
  if (!entry) return false;
  Ref value;
  Source source;
  if (source.find(values)) {
    const bool is_stretched = source.ndim() && source.size(0) == 1;  // of which Python drops dims
    if (is_stretched || !a.dtype.is(source.aval(), type) || source.owner.get() == target.owner.get()) return false;
    if (!a.names.is(source.aval(), Py_None) || !a.device.is(source.aval(), objects.cpu)) return false;
    value = source.value;
  } else {
    const Ref aval(PyObject_CallFunction(objects.aval_of, "()O", type));
    value = aval ? filled(aval.get(), values) : Ref();
  }
  Ref inputs(value ? PyTuple_New(2 + indices.count) : nullptr);
  if (!inputs) return false;
  PyTuple_SET_ITEM(inputs.get(), 0, Py_NewRef(target.value.get()));
  for (Py_ssize_t at = 0; at < indices.count; ++at) {
    PyTuple_SET_ITEM(inputs.get(), 1 + at, Py_NewRef(indices.values[at].get()));
  }
  PyTuple_SET_ITEM(inputs.get(), 1 + indices.count, Py_NewRef(value.get()));
  const Ref result = first_of(try_apply(PyTuple_GET_ITEM(entry.get(), 1), inputs.get()));
  return result && write_to(target.tensor, result.get());
}

// Write to the part of a tensor at an index. False if Python has to do it, or with an exception.
bool assign(PyObject* x, PyObject* index, PyObject* values) {
  Source target, base;
  const Ref state = writing_state();
  if (!state || !target.find(x)) return false;
  Source mask;
  if (mask.find(index) && mask.has_size_of(target) && objects.aval.dtype.is(mask.aval(), objects.bool_)) {
    const bool are_here =
        objects.aval.device.is(mask.aval(), objects.cpu) && objects.aval.device.is(target.aval(), objects.cpu);
    return are_here && fill_masked(target, mask, values);
  }
  Steps steps;
  Indices indices;
  if (!steps_of(target, index, steps, &indices)) return false;
  if (indices.count) return !steps.count && put_at(target, indices, values);
  Ref path = target.is_view() ? Ref::to(objects.alias.steps.get(target.alias.get())) : Ref::to(objects.empty);
  if (target.is_view() && !objects.alias.base.is(target.alias.get(), target.owner.get())) return false;
  if (!base.find(target.owner.get()) || role_of(base.value) != Py_None || !is_one_to_one(path.get())) return false;
  if (!objects.aval.names.is(base.aval(), Py_None)) return false;
  PyObject* aval = type_after(target, steps);
  if (!aval) return false;
  Ref value;
  Source source;
  if (source.find(values)) {
    if (source.aval() != aval || role_of(source.value) != Py_None || source.owner.get() == target.owner.get()) {
      return false;
    }
    value = source.value;
  } else {
    value = filled(aval, values);
  }
  Ref added = value ? path_of(steps) : Ref();
  if (added) path = Ref(PySequence_Concat(path.get(), added.get()));
  if (!added || !path) return false;
  Ref new_base = written(path.get(), base.value, value);
  return new_base && put(base, new_base.get(), objects.ambient.grad.is(state.get(), Py_True));
}

// --- functions of the module --------------------------------------------------------------------------------------

// write(target, value, *, uniform=False)
PyObject* write(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) {
  if (PyVectorcall_NARGS(nargsf) == 2) {
    if (write_to(args[0], args[1])) return Py_NewRef(args[0]);
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(objects.write, args, nargsf, names);
}

// write_result(target, result): whether the result of an in-place form has been written to its first argument
PyObject* write_result(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || Py_TYPE(args[1]) != objects.tensor.type) Py_RETURN_FALSE;
  PyObject* value = value_of(args[1]);
  if (!value || !objects.facts.alias.is(facts_of(args[1]), Py_None)) Py_RETURN_FALSE;
  if (write_to(args[0], value)) Py_RETURN_TRUE;
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_FALSE;
}

// replace_value(target, value)
PyObject* replace_value(PyObject*, PyObject* const* args, size_t nargsf, PyObject* names) {
  Source target;
  if (PyVectorcall_NARGS(nargsf) == 2 && !names && Py_TYPE(args[1]) == objects.value.type && target.find(args[0]) &&
      !target.is_view() && objects.value.aval.get(args[1]) == target.aval() && simple_state()) {
    PyObject* role = role_of(target.value);
    if (role == Py_None || Py_TYPE(role) == objects.leaf) {
      objects.value.role.set(args[1], role);
      if (!set_value(target.tensor, target.value, args[1])) return nullptr;
      Py_RETURN_NONE;
    }
  }
  return PyObject_Vectorcall(objects.replace_value, args, nargsf, names);
}

// copy_(input, src, non_blocking): the input, or None if Python has to do it
PyObject* copy_(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Source target, source;
  const AvalClass& a = objects.aval;
  if (count != 3 || !target.find(args[0]) || !source.find(args[1]) || !source.has_size_of(target) ||
      source.owner.get() == target.owner.get() || a.device.get(source.aval()) != a.device.get(target.aval()) ||
      !a.names.is(source.aval(), Py_None) || !a.names.is(target.aval(), Py_None) || !writing_state()) {
    return none();
  }
  const Ref inputs(PyTuple_Pack(2, target.value.get(), source.value.get()));
  const Ref result = inputs ? first_of(try_apply(objects.copy_call, inputs.get())) : Ref();
  return result && write_to(target.tensor, result.get()) ? Py_NewRef(args[0]) : none();
}

// setitem(x, index, values): whether it is done
PyObject* setitem(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count == 3 && assign(args[0], args[1], args[2])) Py_RETURN_TRUE;
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_FALSE;
}

PyMethodDef functions[] = {
    {"write", method(write), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"replace_value", method(replace_value), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"write_result", method(write_result), METH_FASTCALL, nullptr},
    {"copy_", method(copy_), METH_FASTCALL, nullptr},
    {"setitem", method(setitem), METH_FASTCALL, nullptr},
    {},
};

}  // namespace

bool init_writes(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace weft
