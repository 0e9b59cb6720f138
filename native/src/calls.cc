// Calls of rows: from the arguments of a public function to what it records.
//
// The twin of what `weft/_tensor/codegen.py` generates for a row, for arguments of the types that are taken unchanged.
// A `RowRecorder` is called with the arguments in the order of the row's parameters, sorts them into inputs and static
// entries, and records. It returns None, and has done nothing, if an argument is something else, or a mode is on: the
// generated function goes on with the arguments as it would without the extension.

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "objects.h"
#include "record.h"

namespace weft {
namespace {

// How a parameter's argument becomes an entry. The letters are those of `_KINDS` in `weft/_tensor/recorders.py`.
enum Kind : char {
  kTensor = 't',    // an input
  kOperand = 'o',   // a tensor or a number, an input
  kNumber = 'n',    // a Python number, an input
  kReal = 'r',      // a float, an input
  kWhole = 'w',     // an int, an input
  kTensors = 'l',   // a list or tuple of tensors, inputs
  kExact = 'e',     // an object of one class, static
  kConstant = 'c',  // a number or text, static
  kPrecise = 'x',   // an int or a float that is no other number, static
  kInts = 'i',      // an int, or a tuple or list of ints, static
  kSizes = 's',     // the same, as a tuple
  kTuple = 'p',     // a tuple or list of ints, static
  kSeparate = 'v',  // sizes as separate arguments, in a tuple, or one tuple in it
  kKey = 'k',       // the generator of a draw, whose seed and number are inputs
};

struct Parameter {
  Kind kind;
  bool may_be_none;  // then None is the entry
  Ref value;         // of `kExact` the class; of numbers the default, which stays static, or null
};

struct RowRecorder {
  PyObject_HEAD PyObject* op;
  std::vector<Parameter>* parameters;
  PyObject* outputs;  // the names of several outputs, or an empty tuple
  PyObject* last_static;
  PyObject* last_call;
  bool makes;  // a tensor from no other, on the default device
  vectorcallfunc vectorcall;
};

// References in the order in which they are added. Few have room within: a call would otherwise pay for two
// allocations.
class Refs {
 public:
  Refs() = default;
  ~Refs() {
    for (size_t at = 0; at < size_; ++at) Py_XDECREF(items()[at]);
  }
  Refs(const Refs&) = delete;
  Refs& operator=(const Refs&) = delete;

  void push_back(Ref item) {
    if (size_ == kWithin) more_.assign(within_.begin(), within_.end());
    if (size_ < kWithin) {
      within_[size_] = item.release();
    } else {
      more_.push_back(item.release());
    }
    ++size_;
  }
  size_t size() const { return size_; }
  PyObject*& operator[](size_t at) { return items()[at]; }

  // All as a tuple, which owns them from now on.
  Ref as_tuple() {
    Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(size_)));
    for (size_t at = 0; tuple && at < size_; ++at) {
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(at), std::exchange(items()[at], nullptr));
    }
    return tuple;
  }

 private:
  static constexpr size_t kWithin = 12;

  PyObject** items() { return size_ <= kWithin ? within_.data() : more_.data(); }

  std::array<PyObject*, kWithin> within_;
  std::vector<PyObject*> more_;
  size_t size_ = 0;
};

// The inputs and static entries of one call.
struct Sorted {
  Refs inputs, entries;
  Py_ssize_t draw = -1;  // the position of a draw's seed among the inputs, which are null until it is drawn
};

bool is_int(PyObject* x) { return PyLong_CheckExact(x); }

// A tuple of the exact ints in a list or tuple; null, without an exception, if there is anything else.
Ref ints_of(PyObject* x) {
  if (!PyTuple_CheckExact(x) && !PyList_CheckExact(x) && Py_TYPE(x) != objects.size) return Ref();
  PyObject** items = PySequence_Fast_ITEMS(x);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(x);
  if (!std::all_of(items, items + count, is_int)) return Ref();
  if (PyTuple_CheckExact(x)) return Ref::to(x);
  Ref tuple(PyTuple_New(count));
  for (Py_ssize_t at = 0; tuple && at < count; ++at) PyTuple_SET_ITEM(tuple.get(), at, Py_NewRef(items[at]));
  return tuple;
}

// The same for sizes, none of which may be negative.
Ref sizes_of(PyObject* x) {
  Ref sizes = is_int(x) ? Ref(PyTuple_Pack(1, x)) : ints_of(x);
  for (Py_ssize_t at = 0; sizes && at < PyTuple_GET_SIZE(sizes.get()); ++at) {
    int overflow = 0;
    if (PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(sizes.get(), at), &overflow) < 0 || overflow) return Ref();
  }
  return sizes;
}

// The marker of several inputs.
Ref many(Py_ssize_t count) {
  const Ref size(PyLong_FromSsize_t(count));
  return size ? Ref(PyObject_CallOneArg(objects.many, size.get())) : Ref();
}

bool is_constant(PyObject* x) {
  return PyUnicode_CheckExact(x) || is_int(x) || PyBool_Check(x) || PyFloat_CheckExact(x);
}

bool is_default(const Parameter& parameter, PyObject* x) {
  PyObject* value = parameter.value.get();
  return value && (x == value || (Py_TYPE(x) == Py_TYPE(value) && PyObject_RichCompareBool(x, value, Py_EQ) == 1));
}

// A number as an input, if it is of the type that the parameter takes.
bool add_number(Sorted& sorted, const Parameter& parameter, PyObject* x, bool fits) {
  if (is_default(parameter, x)) {
    sorted.entries.push_back(parameter.value);
    return true;
  }
  Ref value = fits ? number(x) : Ref();
  if (!value) return false;
  sorted.inputs.push_back(std::move(value));
  sorted.entries.push_back(Ref::to(objects.one));
  return true;
}

bool add_tensor(Sorted& sorted, PyObject* x) {
  PyObject* value = value_of(x);
  if (value) sorted.inputs.push_back(Ref::to(value));
  return value != nullptr;
}

// Sort one argument; false, with or without an exception, if it is not for this code.
bool add(Sorted& sorted, const Parameter& parameter, PyObject* x) {
  if (x == Py_None && parameter.may_be_none) {
    sorted.entries.push_back(Ref::to(Py_None));
    return true;
  }
  Ref entry;
  switch (parameter.kind) {
    case kTensor:
    case kOperand:
      if (!add_tensor(sorted, x)) {
        return parameter.kind == kOperand && add_number(sorted, Parameter{kOperand, false, Ref()}, x, true);
      }
      entry = Ref::to(objects.one);
      break;
    case kNumber:
      return add_number(sorted, parameter, x, true);
    case kReal:
      return add_number(sorted, parameter, x, PyFloat_CheckExact(x));
    case kWhole:
      return add_number(sorted, parameter, x, is_int(x));
    case kTensors: {
      if (!PyList_CheckExact(x) && !PyTuple_CheckExact(x)) return false;
      const Py_ssize_t count = PySequence_Fast_GET_SIZE(x);
      for (Py_ssize_t at = 0; at < count; ++at) {
        if (!add_tensor(sorted, PySequence_Fast_GET_ITEM(x, at))) return false;
      }
      entry = many(count);
      break;
    }
    case kExact:
      if (reinterpret_cast<PyObject*>(Py_TYPE(x)) == parameter.value.get()) entry = Ref::to(x);
      break;
    case kConstant:
      entry = is_constant(x) ? Ref::to(x) : ints_of(x);
      break;
    case kPrecise:
      if (is_int(x) || PyFloat_CheckExact(x)) entry = Ref(PyObject_CallOneArg(objects.exact, x));
      break;
    case kTuple:
      entry = ints_of(x);
      break;
    case kInts:
      entry = is_int(x) ? Ref::to(x) : ints_of(x);
      break;
    case kSizes:
      entry = sizes_of(x);
      break;
    case kKey:
      if (x != Py_None) return false;
      sorted.draw = static_cast<Py_ssize_t>(sorted.inputs.size());
      sorted.inputs.push_back(Ref());
      sorted.inputs.push_back(Ref());
      entry = many(2);
      break;
    case kSeparate:
      if (!PyTuple_CheckExact(x)) {
        entry = sizes_of(x);
      } else if (PyTuple_GET_SIZE(x)) {
        entry = sizes_of(PyTuple_GET_SIZE(x) == 1 ? PyTuple_GET_ITEM(x, 0) : x);
      }
      break;
  }
  if (!entry) return false;
  sorted.entries.push_back(std::move(entry));
  return true;
}

// Whether these are the static entries of the call before.
bool is_last(const RowRecorder& recorder, Refs& entries) {
  if (!recorder.last_static) return false;
  for (size_t at = 0; at < entries.size(); ++at) {
    if (entries[at] != PyTuple_GET_ITEM(recorder.last_static, static_cast<Py_ssize_t>(at))) return false;
  }
  return true;
}

// The call with these static entries, made by Python the first time; null with an exception.
Ref call_of(RowRecorder& recorder, Refs& entries) {
  if (is_last(recorder, entries)) return Ref::to(recorder.last_call);
  Ref fixed = entries.as_tuple();
  Ref key(fixed ? PyTuple_Pack(3, recorder.op, fixed.get(), Py_None) : nullptr);
  if (!key) return Ref();
  Ref call = Ref::to(PyDict_GetItemWithError(objects.calls, key.get()));
  if (!call && !PyErr_Occurred()) {
    call = Ref(PyObject_CallFunctionObjArgs(objects.call_of, recorder.op, fixed.get(), nullptr));
  }
  if (call) {
    Py_XSETREF(recorder.last_static, fixed.release());
    Py_XSETREF(recorder.last_call, Py_NewRef(call.get()));
  }
  return call;
}

// Take a draw of the default generator.
bool draw(Sorted& sorted) {
  const Ref drawn(PyObject_CallNoArgs(objects.draw));
  for (Py_ssize_t at = 0; drawn && at < 2; ++at) {
    PyObject* input = number(PyTuple_GET_ITEM(drawn.get(), at)).release();
    if (!input) return false;
    sorted.inputs[static_cast<size_t>(sorted.draw + at)] = input;
  }
  return static_cast<bool>(drawn);
}

// The values of a call; null with an exception.
Ref apply(PyObject* call, PyObject* inputs) {
  Ref values = try_apply(call, inputs);
  if (values || PyErr_Occurred()) return values;
  return Ref(PyObject_CallFunctionObjArgs(objects.apply, call, inputs, nullptr));
}

PyObject* recorder_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  RowRecorder& recorder = *reinterpret_cast<RowRecorder*>(self);
  const std::vector<Parameter>& parameters = *recorder.parameters;
  if (static_cast<size_t>(PyVectorcall_NARGS(nargsf)) != parameters.size()) {
    PyErr_SetString(PyExc_TypeError, "a recorder takes an argument for each parameter");
    return nullptr;
  }
  Sorted sorted;
  bool is_sorted = simple_state() && (!recorder.makes || is_default_device());
  for (size_t at = 0; at < parameters.size() && is_sorted; ++at) is_sorted = add(sorted, parameters[at], args[at]);
  const bool draws = sorted.draw >= 0;
  if (!is_sorted) {
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
  }
  const Ref call = call_of(recorder, sorted.entries);
  if (!call || (draws && !draw(sorted))) return nullptr;
  const Ref inputs = sorted.inputs.as_tuple();
  const Ref values = inputs ? apply(call.get(), inputs.get()) : Ref();
  return values ? tensors_of(recorder.op, recorder.outputs, values.get()) : nullptr;
}

PyObject* recorder_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"op", "outputs", "parameters", "makes", nullptr};
  PyObject *op, *outputs, *parameters;
  int makes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!p", const_cast<char**>(names), &op, &PyTuple_Type, &outputs,
                                   &PyTuple_Type, &parameters, &makes)) {
    return nullptr;
  }
  auto list = std::make_unique<std::vector<Parameter>>();
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(parameters); ++at) {
    const char* kind;
    int may_be_none;
    PyObject* value;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(parameters, at), "spO", &kind, &may_be_none, &value)) return nullptr;
    list->push_back({static_cast<Kind>(*kind), may_be_none != 0, value == Py_None ? Ref() : Ref::to(value)});
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  RowRecorder& recorder = *reinterpret_cast<RowRecorder*>(self);
  recorder.op = Py_NewRef(op);
  recorder.outputs = Py_NewRef(outputs);
  recorder.parameters = list.release();
  recorder.makes = makes != 0;
  recorder.vectorcall = recorder_call;
  return self;
}

void recorder_dealloc(PyObject* self) {
  RowRecorder& recorder = *reinterpret_cast<RowRecorder*>(self);
  delete recorder.parameters;
  Py_XDECREF(recorder.op);
  Py_XDECREF(recorder.outputs);
  Py_XDECREF(recorder.last_static);
  Py_XDECREF(recorder.last_call);
  Py_TYPE(self)->tp_free(self);
}

PyTypeObject recorder_type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "weft._native.RowRecorder",
    .tp_basicsize = sizeof(RowRecorder),
    .tp_dealloc = recorder_dealloc,
    .tp_vectorcall_offset = offsetof(RowRecorder, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Records a call of a row whose arguments are of common types, or returns None.",
    .tp_new = recorder_new,
};

}  // namespace

bool init_calls(PyObject* module) { return PyModule_AddType(module, &recorder_type) == 0; }

}  // namespace weft
