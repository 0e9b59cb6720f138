// Running machines, and their type in Python.

#include <immintrin.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "arrays.h"
#include "machine.h"
#include "python.h"

namespace weft {
namespace {

constexpr npy_intp kLine = 64;          // bytes
constexpr npy_intp kArena = 1 << 20;    // bytes that a thread keeps
constexpr unsigned kExceptions = 0x3f;  // what MXCSR notes of infinities and NaN
// Set when the package is imported: the signals that have come, what handles them, and a context without NumPy's
// warnings
PyObject *received = nullptr, *poll = nullptr, *quiet = nullptr;

// Memory that a thread's runs use as a stack, since a run may call a function that runs another machine.
class Arena {
 public:
  explicit Arena(npy_intp bytes) : bytes_(bytes) {
    if (!block_) block_.reset(static_cast<char*>(std::aligned_alloc(kLine, kArena)));
    if (block_ && used_ + bytes <= kArena) {
      memory_ = block_.get() + used_;
      used_ += bytes;
    } else {
      own_.reset(static_cast<char*>(std::aligned_alloc(kLine, static_cast<std::size_t>(bytes))));
      memory_ = own_.get();
    }
  }
  ~Arena() {
    if (!own_ && memory_) used_ -= bytes_;
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  char* memory() const { return memory_; }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<char, Free>;
  static thread_local Memory block_;
  static thread_local npy_intp used_;
  npy_intp bytes_;
  char* memory_ = nullptr;
  Memory own_;
};

thread_local Arena::Memory Arena::block_;
thread_local npy_intp Arena::used_ = 0;

npy_intp rounded(npy_intp bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// `with quiet():`, for as long as functions are called.
class Quiet {
 public:
  Quiet() : context_(PyObject_CallNoArgs(quiet)) {
    if (context_) is_entered_ = static_cast<bool>(Ref(PyObject_CallMethod(context_.get(), "__enter__", nullptr)));
  }
  ~Quiet() { leave(); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  explicit operator bool() const { return is_entered_; }

  // Leave it; false with an exception, which may be that of a signal, unless there was one before.
  bool leave() {
    if (!std::exchange(is_entered_, false)) return !PyErr_Occurred();
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    const Ref left(PyObject_CallMethod(context_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    if (type) PyErr_Restore(type, error, trace);
    return left && !type;
  }

 private:
  Ref context_;
  bool is_entered_ = false;
};

// A run of a machine. Its tables lie in the arena: for each buffer its memory, and the object that has it.
class Run {
 public:
  Run(const Machine& machine, char* memory) : machine_(machine) {
    const std::size_t buffers = machine.buffers.size();
    arena_ = memory;
    memory += machine.arena;
    bases_ = reinterpret_cast<char**>(memory);
    objects_ = reinterpret_cast<PyObject**>(bases_ + buffers);
    numbers_ = reinterpret_cast<char*>(objects_ + buffers);
    for (std::size_t at = 0; at < buffers; ++at) {
      const Buffer& buffer = machine.buffers[at];
      objects_[at] = buffer.constant.get();
      Py_XINCREF(objects_[at]);
      bases_[at] = buffer.constant ? PyArray_BYTES(as_array(objects_[at])) : arena_ + buffer.offset;
    }
  }
  ~Run() {
    for (std::size_t at = 0; at < machine_.buffers.size(); ++at) Py_XDECREF(objects_[at]);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  static npy_intp bytes(const Machine& machine) {
    const auto buffers = static_cast<npy_intp>(machine.buffers.size());
    const npy_intp tables = buffers * static_cast<npy_intp>(2 * sizeof(char*));
    return rounded(machine.arena + tables + static_cast<npy_intp>(machine.inputs.size()) * kNumberBytes);
  }

  bool take_inputs(PyObject* const* given) {
    for (std::size_t i = 0; i < machine_.inputs.size(); ++i) {
      const bool is_object = machine_.buffers[i].is_object;
      if (!take(given[i], machine_.registers[i], is_object, numbers_ + i * kNumberBytes, &bases_[i], &objects_[i])) {
        return false;
      }
    }
    return true;
  }

  bool run_all() {
    for (const Action& action : machine_.actions) {
      if (action.is_long && !look_for_signals()) return false;
      for (const int at : action.made) {
        if (!make_array(at)) return false;
      }
      if (action.kind == Kind::call) {
        if (!run_call(machine_.calls[action.at])) return false;
      } else if (action.is_long) {
        PyThreadState* state = PyEval_SaveThread();
        run_steps(action);
        _mm_setcsr(_mm_getcsr() & ~kExceptions);
        PyEval_RestoreThread(state);
      } else {
        run_steps(action);
      }
      for (const int at : action.ended) Py_CLEAR(objects_[at]);
    }
    return true;
  }

  bool give(PyObject** results) {
    for (std::size_t i = 0; i < machine_.outputs.size(); ++i) {
      results[i] = result(machine_.outputs[i]);
      if (!results[i]) {
        while (i-- > 0) Py_CLEAR(results[i]);
        return false;
      }
    }
    return true;
  }

 private:
  bool look_for_signals() {
    if (!received || PyList_GET_SIZE(received) == 0) return true;
    return static_cast<bool>(Ref(PyObject_CallNoArgs(poll)));
  }

  bool make_array(int at) {
    const Buffer& buffer = machine_.buffers[at];
    objects_[at] = buffer.like >= 0 ? make(machine_.registers[buffer.like]) : make_bytes(buffer.bytes);
    if (!objects_[at]) return false;
    bases_[at] = PyArray_BYTES(as_array(objects_[at]));
    return true;
  }

  void run_steps(const Action& action) {
    switch (action.kind) {
      case Kind::chain:
        return run_chain(machine_.chains[action.at], bases_, arena_);
      case Kind::reduce:
        return run_reduction(machine_.reductions[action.at], bases_);
      case Kind::product:
        return run_product(machine_.products[action.at], bases_);
      default:
        return run_loop(machine_.loops[action.at], bases_);
    }
  }

  // The array that shows a register.
  Ref array_of(int number) const {
    const Register& wanted = machine_.registers[number];
    if (machine_.buffers[wanted.buffer].like == number) return Ref::to(objects_[wanted.buffer]);
    return Ref(shown(wanted, bases_[wanted.buffer] + wanted.offset, objects_[wanted.buffer]));
  }

  bool run_call(const Call& call) {
    const Ref args(PyTuple_New(static_cast<Py_ssize_t>(call.ins.size())));
    if (!args) return false;
    for (std::size_t i = 0; i < call.ins.size(); ++i) {
      Ref array = array_of(call.ins[i]);
      if (array && i == 0 && (call.flags & kOverwrites)) array = to_overwrite(call, std::move(array));
      if (!array) return false;
      PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), array.release());
    }
    const Ref returned(PyObject_Call(call.function.get(), args.get(), nullptr));
    if (!returned) return false;
    if (!(call.flags & kSeveral)) return keep(call.outs[0], returned.get());
    const Ref items(PySequence_Fast(returned.get(), "expected a sequence of arrays"));
    if (!items) return false;
    for (std::size_t i = 0; i < call.outs.size(); ++i) {
      if (!keep(call.outs[i], PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i)))) return false;
    }
    return true;
  }

  // The first argument of a function that writes to it: a copy, unless nobody else has it or a part of it.
  Ref to_overwrite(const Call& call, Ref array) {
    const int at = machine_.registers[call.ins[0]].buffer;
    const Place place = machine_.buffers[at].place;
    const bool is_own = (place == Place::array || place == Place::called) && array.get() == objects_[at];
    PyArrayObject* given = as_array(array.get());
    if (is_own && call.is_last_use && Py_REFCNT(array.get()) == 2 && PyArray_CHKFLAGS(given, NPY_ARRAY_OWNDATA) &&
        PyArray_ISWRITEABLE(given)) {
      Py_CLEAR(objects_[at]);
      return array;
    }
    return Ref(PyArray_NewCopy(given, NPY_CORDER));
  }

  bool keep(int number, PyObject* result) {
    const Register& wanted = machine_.registers[number];
    PyObject* array = conformed(result, wanted);
    if (!array) return false;
    Py_XSETREF(objects_[wanted.buffer], array);
    bases_[wanted.buffer] = PyArray_BYTES(as_array(array));
    return true;
  }

  PyObject* result(int number) {
    const Register& wanted = machine_.registers[number];
    const Buffer& buffer = machine_.buffers[wanted.buffer];
    PyObject* object = objects_[wanted.buffer];
    if (!object) return make(wanted);  // of no elements, so that no step fills it
    if (buffer.place == Place::array) return Py_NewRef(object);
    const bool is_own =
        buffer.place == Place::called && buffer.like == number && Py_REFCNT(object) == 1 && wanted.contiguous();
    if (is_own && !PyArray_BASE(as_array(object))) return Py_NewRef(object);
    const Ref view(shown(wanted, bases_[wanted.buffer] + wanted.offset, object));
    return view ? compact(view.get()) : nullptr;
  }

  const Machine& machine_;
  char* arena_;
  char** bases_;
  PyObject** objects_;
  char* numbers_;
};

struct MachineObject {
  PyObject_HEAD Machine* machine;
  vectorcallfunc call;
};

PyObject* call_machine(PyObject* self, PyObject* const* args, std::size_t count, PyObject* names) {
  const Machine& machine = *reinterpret_cast<MachineObject*>(self)->machine;
  if (PyVectorcall_NARGS(count) != 1 || names) {
    PyErr_SetString(PyExc_TypeError, "machine: expected one sequence of inputs");
    return nullptr;
  }
  const Ref inputs(PySequence_Fast(args[0], "machine: expected one sequence of inputs"));
  if (!inputs) return nullptr;
  if (PySequence_Fast_GET_SIZE(inputs.get()) != static_cast<Py_ssize_t>(machine.inputs.size())) {
    PyErr_Format(PyExc_TypeError, "machine: expected %zu inputs, got %zd", machine.inputs.size(),
                 PySequence_Fast_GET_SIZE(inputs.get()));
    return nullptr;
  }
  Ref results(PyList_New(static_cast<Py_ssize_t>(machine.outputs.size())));
  if (!results) return nullptr;
  PyObject** items = reinterpret_cast<PyListObject*>(results.get())->ob_item;
  if (!machine.run(PySequence_Fast_ITEMS(inputs.get()), items)) return nullptr;
  return results.release();
}

std::vector<Register> inputs_from(PyObject* sequence) {
  const Ref fast = Ref::checked(PySequence_Fast(sequence, "expected a sequence of inputs"));
  std::vector<Register> inputs;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    inputs.push_back(register_from(PySequence_Fast_GET_ITEM(fast.get(), i)));
  }
  return inputs;
}

std::vector<Part> parts_from(PyObject* sequence) {
  const Ref fast = Ref::checked(PySequence_Fast(sequence, "expected a sequence of parts"));
  std::vector<Part> parts;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject *fragment, *numbers;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast.get(), i), "OO", &fragment, &numbers)) throw PythonError();
    parts.push_back({fragment_of(fragment), numbers_from(numbers)});
  }
  return parts;
}

PyObject* machine_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *inputs, *parts, *outputs;
  if (!PyArg_ParseTuple(args, "OOO", &inputs, &parts, &outputs)) return nullptr;
  Ref self(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  auto* object = reinterpret_cast<MachineObject*>(self.get());
  object->call = call_machine;
  try {
    object->machine = new Machine(joined(inputs_from(inputs), parts_from(parts), numbers_from(outputs)));
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return nullptr;
  }
  return self.release();
}

void machine_dealloc(PyObject* self) {
  delete reinterpret_cast<MachineObject*>(self)->machine;
  Py_TYPE(self)->tp_free(self);
}

// How many steps are calls, for tests and figures.
PyObject* machine_calls(PyObject* self, PyObject*) {
  const Machine& machine = *reinterpret_cast<MachineObject*>(self)->machine;
  Ref functions(PyList_New(0));
  for (const Call& call : machine.calls) {
    if (functions && PyList_Append(functions.get(), call.function.get()) < 0) return nullptr;
  }
  return functions.release();
}

PyMethodDef methods[] = {
    {"calls", machine_calls, METH_NOARGS, "The functions that it calls, since no loops of its own compute them."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject machine_type = {
    .ob_base = {PyObject_HEAD_INIT(nullptr) 0},
    .tp_name = "weft._native.Machine",
    .tp_basicsize = sizeof(MachineObject),
    .tp_dealloc = machine_dealloc,
    .tp_vectorcall_offset = offsetof(MachineObject, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Fragments joined to a program: (inputs, parts, outputs).",
    .tp_methods = methods,
    .tp_new = machine_new,
};

// has_loop(ufunc, types): whether NumPy has a loop for operands of exactly these types.
PyObject* has_loop(PyObject*, PyObject* args) {
  PyObject *ufunc, *types;
  if (!PyArg_ParseTuple(args, "O!O!", &PyUFunc_Type, &ufunc, &PyTuple_Type, &types)) return nullptr;
  std::vector<PyArray_Descr*> descrs;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i) {
    descrs.push_back(reinterpret_cast<PyArray_Descr*>(PyTuple_GET_ITEM(types, i)));
  }
  auto* function = reinterpret_cast<PyUFuncObject*>(ufunc);
  const bool fits = static_cast<int>(descrs.size()) == function->nargs;
  return PyBool_FromLong(fits && loop_of(function, descrs.data()).function != nullptr);
}

// has_copy(from, to): whether there is a loop that converts elements.
PyObject* has_copy(PyObject*, PyObject* args) {
  PyObject *from, *to;
  if (!PyArg_ParseTuple(args, "O!O!", &PyArrayDescr_Type, &from, &PyArrayDescr_Type, &to)) return nullptr;
  return PyBool_FromLong(
      copy_of(reinterpret_cast<PyArray_Descr*>(from), reinterpret_cast<PyArray_Descr*>(to)).function != nullptr);
}

// distance(a, b): how many bytes an array's first element lies behind that of another one.
PyObject* distance(PyObject*, PyObject* args) {
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "O!O!", &PyArray_Type, &a, &PyArray_Type, &b)) return nullptr;
  return PyLong_FromSsize_t(PyArray_BYTES(as_array(b)) - PyArray_BYTES(as_array(a)));
}

PyObject* watch(PyObject*, PyObject* args) {
  PyObject *list, *function, *context;
  if (!PyArg_ParseTuple(args, "O!OO", &PyList_Type, &list, &function, &context)) return nullptr;
  Py_XSETREF(received, Py_NewRef(list));
  Py_XSETREF(poll, Py_NewRef(function));
  Py_XSETREF(quiet, Py_NewRef(context));
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"has_loop", has_loop, METH_VARARGS, "Whether NumPy has a loop for operands of exactly these types."},
    {"has_copy", has_copy, METH_VARARGS, "Whether there is a loop that converts elements of one type to another."},
    {"distance", distance, METH_VARARGS, "How many bytes an array's first element lies behind that of another one."},
    {"watch", watch, METH_VARARGS,
     "Call a function before long steps while a list of signals is not empty, and others in a context."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool Machine::run(PyObject* const* given, PyObject** results) const {
  const Arena arena(Run::bytes(*this));
  if (!arena.memory()) {
    PyErr_NoMemory();
    return false;
  }
  Run run(*this, arena.memory());
  bool is_done = run.take_inputs(given);
  if (is_done && calls.empty()) {
    is_done = run.run_all();
  } else if (is_done) {
    Quiet quietly;
    is_done = quietly && run.run_all();
    is_done = quietly.leave() && is_done;
  }
  is_done = is_done && run.give(results);
  _mm_setcsr(_mm_getcsr() & ~kExceptions);
  return is_done;
}

bool run(PyObject* machine, PyObject* const* inputs, PyObject** results) {
  return reinterpret_cast<MachineObject*>(machine)->machine->run(inputs, results);
}

bool init_machine(PyObject* module) {
  if (!add_fragment_type(module) || PyModule_AddType(module, &machine_type) < 0) return false;
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
