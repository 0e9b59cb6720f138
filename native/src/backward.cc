// The loops of a backward pass: `weft/_autograd/engine.py` and `graph.py`, for applications that need nothing special.
//
// As for recording, each function has a twin in Python. What is rare (several outputs, hooks, users' derivatives, what
// an earlier pass has executed) is handed to the methods of the pass. The tables are those of the pass, since methods
// use them, too.

#include <memory>
#include <unordered_map>
#include <vector>

#include "objects.h"
#include "record.h"

namespace weft {
namespace {

// The derivative of an application with one output, as the pass needs it.
struct Derivative {
  Ref signature, object, computed;  // what is differentiated; its derivative; the signature of that, or null
  Ref only;                         // the output, if exactly one gradient is wanted, and is computed; or null
  std::vector<int> need;            // the inputs whose gradients are wanted
  std::vector<int> operands;        // positions among (inputs, output, cotangent)
  std::vector<int> sources;         // for each wanted gradient: an output, or one of the constants below
  bool saves = false;

  static constexpr int kCotangent = -1, kNone = -2;
};

struct Key {
  PyObject* signature;
  uint64_t need;
  bool operator==(const Key&) const = default;
};
struct Hash {
  size_t operator()(const Key& key) const {
    return (reinterpret_cast<size_t>(key.signature) >> 4 ^ key.need) * 0x9e3779b97f4a7c15u;
  }
};

// Never destroyed, as what it refers to may not be when the process ends.
auto& derivatives = *new std::unordered_map<Key, std::shared_ptr<const Derivative>, Hash>;
constexpr size_t kMostDerivatives = 65536;
constexpr Py_ssize_t kMostInputs = 64;

bool read_positions(PyObject* object, const char* name, int offset, std::vector<int>& positions) {
  Ref items(PyObject_GetAttrString(object, name));
  if (!items) return false;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(items.get()); ++at) {
    positions.push_back(offset + static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(items.get(), at))));
  }
  return !PyErr_Occurred();
}

std::shared_ptr<const Derivative> described(PyObject* signature, PyObject* inputs, const std::vector<int>& need) {
  auto result = std::make_shared<Derivative>();
  result->signature = Ref::to(signature);
  result->need = need;
  Ref positions(PyTuple_New(static_cast<Py_ssize_t>(need.size())));
  for (size_t at = 0; positions && at < need.size(); ++at) {
    PyTuple_SET_ITEM(positions.get(), static_cast<Py_ssize_t>(at), PyLong_FromLong(need[at]));
  }
  Ref first(Py_BuildValue("(i)", 0));
  if (!positions || !first) return nullptr;
  result->object =
      Ref(PyObject_CallFunctionObjArgs(objects.derivative_of, signature, positions.get(), first.get(), nullptr));
  if (!result->object) return nullptr;
  PyObject* object = result->object.get();
  Ref computed(PyObject_GetAttrString(object, "signature")), only(PyObject_GetAttrString(object, "only"));
  Ref saves(PyObject_GetAttrString(object, "saves")), sources(PyObject_GetAttrString(object, "sources"));
  const int count = static_cast<int>(PyTuple_GET_SIZE(inputs));
  if (!computed || !only || !saves || !sources || !read_positions(object, "inputs", 0, result->operands) ||
      !read_positions(object, "outputs", count, result->operands) ||
      !read_positions(object, "cotangents", count + 1, result->operands)) {
    return nullptr;
  }
  if (computed.get() != Py_None) result->computed = std::move(computed);
  if (only.get() != Py_None) result->only = std::move(only);
  result->saves = saves.get() == Py_True;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(sources.get()); ++at) {
    PyObject* source = PyTuple_GET_ITEM(sources.get(), at);
    if (source == Py_None) {
      result->sources.push_back(Derivative::kNone);
    } else if (PyTuple_GET_ITEM(source, 0) == Py_True) {
      result->sources.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(source, 1))));
    } else {
      result->sources.push_back(Derivative::kCotangent);
    }
  }
  return result;
}

std::shared_ptr<const Derivative> derivative_of(PyObject* signature, PyObject* inputs) {
  Key key{signature, 0};
  std::vector<int> need;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
    if (objects.value.role.is(PyTuple_GET_ITEM(inputs, at), Py_None)) continue;
    key.need |= uint64_t{1} << at;
  }
  if (const auto place = derivatives.find(key); place != derivatives.end()) return place->second;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
    if (key.need >> at & 1) need.push_back(static_cast<int>(at));
  }
  std::shared_ptr<const Derivative> made = described(signature, inputs, need);
  if (!made) return nullptr;
  if (derivatives.size() >= kMostDerivatives) derivatives.clear();
  return derivatives[key] = std::move(made);
}

// The key of a place in the graph, borrowed: a leaf's role, or the number of a recording. `key_of` in Python.
PyObject* key_of(PyObject* x) {
  PyObject* role = Py_TYPE(x) == objects.value.type ? objects.value.role.get(x) : x;
  if (role == objects.interior_role) return objects.value.time.get(x);
  if (PyObject_TypeCheck(role, objects.leaf)) return role;
  if (Py_TYPE(role) == objects.executed.type) return objects.executed.time.get(role);
  return objects.value.time.get(x);
}

class Pass {
 public:
  bool open(PyObject* self) {
    self_ = self;
    grads_ = Ref(PyObject_GetAttrString(self, "grads"));
    left_ = Ref(PyObject_GetAttrString(self, "left"));
    passed_ = Ref(PyObject_GetAttrString(self, "passed"));
    state_ = Ref(PyObject_GetAttrString(self, "ambient"));
    Ref retains(PyObject_GetAttrString(self, "retain_graph"));
    if (!grads_ || !left_ || !passed_ || !state_ || !retains) return false;
    retains_ = PyObject_IsTrue(retains.get()) == 1;
    return true;
  }

  bool execute(PyObject* vertex) {
    const ValueClass& v = objects.value;
    const bool is_common = Py_TYPE(vertex) == v.type && v.role.is(vertex, objects.interior_role) &&
                           objects.output.alone.is(v.origin.get(vertex), Py_True) &&
                           PyTuple_GET_SIZE(v.inputs.get(vertex)) <= kMostInputs;
    if (!is_common) return called("_differentiate", vertex);
    const Ref inputs = Ref::to(v.inputs.get(vertex));
    const std::shared_ptr<const Derivative> derivative =
        derivative_of(objects.output.signature.get(v.origin.get(vertex)), inputs.get());
    if (!derivative) return false;
    PyObject* time = v.time.get(vertex);
    Ref grad = Ref::to(PyDict_GetItemWithError(grads_.get(), time));
    if (!grad) {
      if (PyErr_Occurred() || !count(inputs.get())) return false;
    } else if (PyDict_DelItem(grads_.get(), time) < 0 || !propagate(vertex, inputs.get(), *derivative, grad.get())) {
      return false;
    }
    return retains_ || mark_executed(vertex, derivative->saves);
  }

 private:
  bool called(const char* method, PyObject* argument) {
    return static_cast<bool>(Ref(PyObject_CallMethod(self_, method, "O", argument)));
  }

  // Record the gradients of an application's inputs, and add them to those of what made the inputs.
  bool propagate(PyObject* vertex, PyObject* inputs, const Derivative& derivative, PyObject* grad) {
    Ref results;
    if (derivative.computed) {
      Ref operands = picked(vertex, inputs, derivative, grad);
      if (!operands) return false;
      if (!derivative.only && objects.ambient.grad.is(state_.get(), Py_True)) {
        results = Ref(PyObject_CallFunctionObjArgs(objects.record, derivative.computed.get(), operands.get(),
                                                   state_.get(), nullptr));
      } else {
        // Nothing is watched, and this derivative has neither a precondition nor a doubt. The limit of the list is
        // looked at once, at the end of the pass.
        results = recorded_outputs(derivative.computed.get(), operands.get(), state_.get());
      }
      if (!results) return false;
    }
    for (size_t at = 0; at < derivative.need.size(); ++at) {
      PyObject* x = PyTuple_GET_ITEM(inputs, derivative.need[at]);
      const Ref key = Ref::to(key_of(x));
      const int source = derivative.sources[at];
      if (source != Derivative::kNone) {
        PyObject* gradient = source == Derivative::kCotangent ? grad : PyTuple_GET_ITEM(results.get(), source);
        if (!add(key.get(), gradient)) return false;
      }
      if (!arrived(key.get())) return false;
    }
    return true;
  }

  static Ref picked(PyObject* vertex, PyObject* inputs, const Derivative& derivative, PyObject* grad) {
    const int count = static_cast<int>(PyTuple_GET_SIZE(inputs));
    Ref operands(PyTuple_New(static_cast<Py_ssize_t>(derivative.operands.size())));
    for (size_t at = 0; operands && at < derivative.operands.size(); ++at) {
      const int position = derivative.operands[at];
      PyObject* operand = position < count ? PyTuple_GET_ITEM(inputs, position) : position == count ? vertex : grad;
      PyTuple_SET_ITEM(operands.get(), static_cast<Py_ssize_t>(at), Py_NewRef(operand));
    }
    return operands;
  }

  bool add(PyObject* key, PyObject* grad) {
    PyObject* before = PyDict_GetItemWithError(grads_.get(), key);
    if (!before) return !PyErr_Occurred() && PyDict_SetItem(grads_.get(), key, grad) == 0;
    const Ref sum(PyObject_CallFunctionObjArgs(objects.add_values, before, grad, state_.get(), nullptr));
    return sum && PyDict_SetItem(grads_.get(), key, sum.get()) == 0;
  }

  // Count a use of a leaf whose gradient has arrived; of all of them, the gradient is complete.
  bool arrived(PyObject* key) {
    PyObject* left = PyDict_GetItemWithError(left_.get(), key);
    if (!left) return !PyErr_Occurred();
    const long uses = PyLong_AsLong(left) - 1;
    const Ref rest(PyLong_FromLong(uses));
    if (!rest || PyDict_SetItem(left_.get(), key, rest.get()) < 0) return false;
    return uses != 0 || called("_complete", key);
  }

  bool count(PyObject* inputs) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
      PyObject* x = PyTuple_GET_ITEM(inputs, at);
      if (objects.value.role.is(x, Py_None)) continue;
      const Ref key = Ref::to(key_of(x));
      if (!arrived(key.get())) return false;
    }
    return true;
  }

  // `mark_executed` in Python.
  bool mark_executed(PyObject* vertex, bool spent) {
    const ValueClass& v = objects.value;
    const ExecutedClass& e = objects.executed;
    const Ref passed(e.type->tp_alloc(e.type, 0));
    if (!passed) return false;
    PyObject* object = passed.get();
    for (const Slot* slot : {&e.hooks, &e.custom, &e.forward}) slot->init(object, Py_None);
    e.site.init(object, objects.no_site);
    e.spent.init(object, spent ? Py_True : Py_False);
    e.origin.init(object, v.origin.get(vertex));
    e.inputs.init(object, v.inputs.get(vertex));
    e.time.init(object, v.time.get(vertex));
    v.role.set(vertex, object);
    PyObject* extras = v.extras.get(vertex);
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(extras); ++at) {
      v.role.set(PyTuple_GET_ITEM(extras, at), objects.freed_role);
    }
    if (PyList_Append(passed_.get(), object) < 0) return false;  // first, since what dies may run anything
    if (!v.content.is(vertex, objects.not_computed)) {
      v.inputs.set(vertex, objects.empty);
      v.extras.set(vertex, objects.empty);
    }
    return true;
  }

  PyObject* self_ = nullptr;
  Ref grads_, left_, passed_, state_;
  bool retains_ = false;
};

// execute(pass, vertices): `BackwardPass._execute`, where nothing is watched and all gradients are wanted
PyObject* execute(PyObject*, PyObject* args) {
  PyObject *self, *vertices;
  if (!PyArg_ParseTuple(args, "OO!", &self, &PyList_Type, &vertices)) return nullptr;
  Pass pass;
  if (!pass.open(self)) return nullptr;
  for (Py_ssize_t at = 0; at < PyList_GET_SIZE(vertices); ++at) {
    const Ref vertex = Ref::to(PyList_GET_ITEM(vertices, at));
    if (!pass.execute(vertex.get())) return nullptr;
  }
  Py_RETURN_NONE;
}

// walk(pass, stack, spent, groups): the loop of `BackwardPass._reach`
PyObject* walk(PyObject*, PyObject* args) {
  PyObject *self, *stack, *spent, *groups;
  if (!PyArg_ParseTuple(args, "OO!OO", &self, &PyList_Type, &stack, &spent, &groups)) return nullptr;
  const ValueClass& v = objects.value;
  const Ref reached(PyObject_GetAttrString(self, "reached")), left(PyObject_GetAttrString(self, "left"));
  if (!reached || !left) return nullptr;
  while (const Py_ssize_t size = PyList_GET_SIZE(stack)) {
    const Ref vertex = Ref::to(PyList_GET_ITEM(stack, size - 1));
    if (PyList_SetSlice(stack, size - 1, size, nullptr) < 0) return nullptr;
    Ref inputs;
    if (Py_TYPE(vertex.get()) == v.type && objects.output.alone.is(v.origin.get(vertex.get()), Py_True)) {
      inputs = Ref::to(v.inputs.get(vertex.get()));
    } else {  // several outputs, or links of an earlier pass: its inputs, unless another output has led to them
      inputs = Ref(PyObject_CallMethod(self, "_inputs_once", "OO", vertex.get(), groups));
      if (!inputs) return nullptr;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs.get()); ++at) {
      PyObject* x = PyTuple_GET_ITEM(inputs.get(), at);
      const bool is_value = Py_TYPE(x) == v.type;
      PyObject* role = is_value ? v.role.get(x) : x;
      if (role == Py_None) continue;
      if (is_value && role == objects.interior_role) {
        PyObject* time = v.time.get(x);
        const int contains = PyDict_Contains(reached.get(), time);
        if (contains < 0) return nullptr;
        if (!contains && (PyDict_SetItem(reached.get(), time, x) < 0 || PyList_Append(stack, x) < 0)) return nullptr;
      } else if (PyObject_TypeCheck(role, objects.leaf)) {
        PyObject* before = PyDict_GetItemWithError(left.get(), role);
        if (!before && PyErr_Occurred()) return nullptr;
        const Ref uses(PyLong_FromLong(before ? PyLong_AsLong(before) + 1 : 1));
        if (!uses || PyDict_SetItem(left.get(), role, uses.get()) < 0) return nullptr;
      } else if (!Ref(PyObject_CallMethod(self, "_enter", "OOO", x, stack, spent))) {
        return nullptr;
      }
    }
  }
  Py_RETURN_NONE;
}

// What takes the place of an input in a graph without arrays. `_link` in Python.
PyObject* link_to(PyObject* x) {
  if (Py_TYPE(x) != objects.value.type) return x;
  PyObject* role = objects.value.role.get(x);
  if (role == Py_None) {
    return objects.aval.weak.is(objects.value.aval.get(x), Py_True) ? x : objects.outside;
  }
  return PyObject_TypeCheck(role, objects.freed) || PyObject_TypeCheck(role, objects.leaf) ? role : x;
}

// drop_values(passed): replace the values in the links of executed applications by roles
PyObject* drop_values(PyObject*, PyObject* passed) {
  if (!PyList_CheckExact(passed)) return PyObject_CallOneArg(objects.drop_values, passed);
  for (Py_ssize_t at = 0; at < PyList_GET_SIZE(passed); ++at) {
    const Ref item = Ref::to(PyList_GET_ITEM(passed, at));
    const Ref inputs = Ref::to(objects.executed.inputs.get(item.get()));
    if (!PyTuple_CheckExact(inputs.get())) {  // shared by several outputs
      const Ref one(PyList_New(0));
      if (!one || PyList_Append(one.get(), item.get()) < 0 ||
          !Ref(PyObject_CallOneArg(objects.drop_values, one.get()))) {
        return nullptr;
      }
      continue;
    }
    Ref links(PyTuple_New(PyTuple_GET_SIZE(inputs.get())));
    if (!links) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs.get()); ++i) {
      PyTuple_SET_ITEM(links.get(), i, Py_NewRef(link_to(PyTuple_GET_ITEM(inputs.get(), i))));
    }
    objects.executed.inputs.set(item.get(), links.get());
  }
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"execute", execute, METH_VARARGS, nullptr},
    {"walk", walk, METH_VARARGS, nullptr},
    {"drop_values", drop_values, METH_O, nullptr},
    {},
};

}  // namespace

bool init_backward(PyObject* module) {
  objects.no_site = PyUnicode_FromString("");
  return objects.no_site && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
