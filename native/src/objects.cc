#include <cstring>

#include "objects.h"

namespace weft {

Objects objects;

bool Slot::find(PyTypeObject* type) {
  Ref descriptor(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!descriptor) return false;
  if (!PyObject_TypeCheck(descriptor.get(), &PyMemberDescr_Type)) {
    PyErr_Format(PyExc_TypeError, "%s.%s is no slot", type->tp_name, name);
    return false;
  }
  offset_ = reinterpret_cast<PyMemberDescrObject*>(descriptor.get())->d_member->offset;
  return true;
}

namespace {

template <class... Slots>
bool find_all(PyTypeObject*& place, PyObject* type, Slots&... slots) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "expected a class");
    return false;
  }
  place = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
  return (slots.find(place) && ...);
}

// Store one object under its name; false, with a Python error, if there is no such name.
bool bind_one(const char* name, PyObject* value) {
  Objects& o = objects;
  const auto is = [name](const char* other) { return !std::strcmp(name, other); };
  if (is("Value")) {
    ValueClass& c = o.value;
    return find_all(c.type, value, c.origin, c.inputs, c.aval, c.content, c.role, c.extras, c.num, c.time, c.doubt,
                    c.owner);
  }
  if (is("Output")) {
    OutputClass& c = o.output;
    return find_all(c.type, value, c.signature, c.index, c.aval, c.taped, c.alone);
  }
  if (is("Signature")) {
    SignatureClass& c = o.signature;
    return find_all(c.type, value, c.outputs, c.requirement, c.main, c.execution);
  }
  if (is("Aval"))
    return find_all(o.aval.type, value, o.aval.inference, o.aval.owner, o.aval.weak, o.aval.device, o.aval.external,
                    o.aval.names, o.aval.dtype, o.aval.size);
  if (is("Call")) {
    CallClass& c = o.call;
    return find_all(c.type, value, c.signatures, c.derives, c.by_layout, c.write, c.spreads);
  }
  if (is("Ambient")) {
    AmbientClass& c = o.ambient;
    return find_all(c.type, value, c.pending, c.grad, c.simple, c.capture, c.context);
  }
  if (is("Pending")) {
    PendingClass& c = o.pending;
    return find_all(c.type, value, c.limit, c.checks, c.unread, c.watches, c.branch, c.room);
  }
  if (is("Tensor")) return find_all(o.tensor.type, value, o.tensor.value, o.tensor.facts);
  if (is("Facts")) {
    FactsClass& c = o.facts;
    return find_all(c.type, value, c.address, c.alias, c.overwritten, c.resized, c.role, c.storage, c.views, c.writes);
  }
  if (is("Alias")) {
    AliasClass& c = o.alias;
    return find_all(c.type, value, c.base, c.steps, c.tracked, c.hidden, c.place, c.layout);
  }
  if (is("Execution")) return find_all(o.execution.type, value, o.execution.host, o.execution.run);
  if (is("Requirement")) {
    return find_all(o.requirement.type, value, o.requirement.check, o.requirement.precondition);
  }
  if (is("Precondition")) {
    return find_all(o.precondition.type, value, o.precondition.on_host, o.precondition.waits);
  }
  if (is("Doubt")) return find_all(o.doubt.type, value, o.doubt.check);
  if (is("RecordedCheck")) {
    CheckClass& c = o.check;
    return find_all(c.type, value, c.passed, c.code, c.failure, c.reported, c.signature, c.site, c.doubt);
  }
  if (is("Program")) return find_all(o.program.type, value, o.program.spent, o.program.runs);
  if (is("Executed")) {
    ExecutedClass& c = o.executed;
    return find_all(c.type, value, c.hooks, c.custom, c.forward, c.site, c.spent, c.origin, c.inputs, c.time);
  }
  if (is("Leaf")) return find_all(o.leaf, value);
  if (is("Interior")) return find_all(o.interior, value);
  if (is("Freed")) return find_all(o.freed, value);
  if (is("StandIn")) return find_all(o.stand_in, value);
  if (is("Size")) return find_all(o.size, value);
  if (is("ndarray")) return find_all(o.ndarray, value);
  if (is("Parameter")) return find_all(o.parameter, value);
  if (is("Shared")) return find_all(o.shared, value);
  const std::pair<const char*, PyObject**> constants[] = {
      {"PENDING", &o.not_computed},
      {"has_passed", &o.has_passed},
      {"leaf_array", &o.leaf_array},
      {"program_seconds", &o.program_seconds},
      {"acquire", &o.acquire},
      {"release", &o.release},
      {"INTERIOR", &o.interior_role},
      {"OUTSIDE", &o.outside},
      {"derivative_of", &o.derivative_of},
      {"add_values", &o.add_values},
      {"drop_values", &o.drop_values},
      {"FREED", &o.freed_role},
      {"CPU", &o.cpu},
      {"reads", &o.reads},
      {"program_of", &o.program_of},
      {"NO_FACTS", &o.no_facts},
      {"weak", &o.weak},
      {"calls", &o.calls},
      {"context", &o.context},
      {"ONE", &o.one},
      {"many", &o.many},
      {"Exact", &o.exact},
      {"call_of", &o.call_of},
      {"default_device", &o.default_device},
      {"default_dtype", &o.default_dtype},
      {"avals", &o.avals},
      {"draw", &o.draw},
      {"at_limit", &o.at_limit},
      {"least_limit", &o.least_limit},
      {"longest", &o.longest},
      {"Listeners", &o.listeners},
      {"Flight", &o.flight},
      {"ledgers", &o.ledgers},
      {"report", &o.report},
      {"tier_of", &o.tier_of},
      {"module_attribute", &o.module_attribute},
      {"module_hooks", &o.module_hooks},
      {"host", &o.host},
      {"item", &o.item},
      {"user_site", &o.user_site},
      {"record", &o.record},
      {"apply", &o.apply},
      {"operand", &o.operand},
      {"finish", &o.finish},
      {"tuple_of", &o.tuple_of},
      {"wrap", &o.wrap},
      {"copied", &o.copied},
      {"step_call", &o.step_call},
      {"finish_view", &o.finish_view},
      {"slice_at", &o.slice_at},
      {"detach_call", &o.detach_call},
      {"masked_fill_call", &o.masked_fill_call},
      {"copy_call", &o.copy_call},
      {"index_calls", &o.index_calls},
      {"copied_array", &o.copied_array},
      {"aval_of", &o.aval_of},
      {"bool_", &o.bool_},
      {"int32", &o.int32},
      {"int64", &o.int64},
      {"write", &o.write},
      {"replace_value", &o.replace_value},
      {"mark_views_stale", &o.mark_views_stale},
      {"NO_CONTEXT", &o.no_context},
      {"fills", &o.fills},
  };
  for (const auto& [other, place] : constants) {
    if (is(other)) {
      *place = Py_NewRef(value);
      return true;
    }
  }
  PyErr_Format(PyExc_TypeError, "bind() has no argument '%s'", name);
  return false;
}

}  // namespace

PyObject* bind(PyObject*, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args)) {
    PyErr_SetString(PyExc_TypeError, "bind() takes keywords");
    return nullptr;
  }
  PyObject *key, *value;
  for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);) {
    if (!bind_one(PyUnicode_AsUTF8(key), value)) return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace weft
