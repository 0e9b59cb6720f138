// Flushing small graphs: `weft/_lazy/flushing.py`, from the list of pending values to their arrays.
//
// The structure of a numbered graph (`graph.cc`) is the key of an entry that knows the program. So a graph that comes
// again is neither planned nor looked up in Python.
//
// Nothing is claimed: a small graph is interpreted, which overwrites nothing. Whoever reads one of its values meanwhile
// (a finalizer, another thread) computes it for itself, and the first array that is stored stays.

#include <memory>
#include <unordered_map>
#include <vector>

#include "flush.h"
#include "graph.h"
#include "machine.h"
#include "objects.h"

namespace weft {
namespace {

PyObject *all_name, *recorder_name;  // of attributes

// --- from a graph to its program --------------------

// The program of all graphs of one structure. `outputs` keeps alive what the key refers to by address.
struct Entry {
  Ref program, machine;
  std::vector<Ref> outputs;
  double interpreting = 0;
  double compiling = -1;  // seconds, once they have been worked out
  bool is_usable = false;
};

constexpr size_t kMostEntries = 4096;
// Never destroyed: at the end of the process, there is no interpreter any more to count references.
auto& entries = *new std::unordered_map<Words, std::shared_ptr<Entry>, Hash>;

Ref list_of(const std::vector<PyObject*>& items) {
  Ref list(PyList_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t at = 0; list && at < items.size(); ++at) {
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(at), Py_NewRef(items[at]));
  }
  return list;
}

Ref list_of(const std::vector<int>& items) {
  Ref list(PyList_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t at = 0; list && at < items.size(); ++at) {
    PyObject* number = PyLong_FromLong(items[at]);
    if (!number) return Ref();
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(at), number);
  }
  return list;
}

// The steps as `Graph` in Python has them.
Ref steps_of(const Graph& graph) {
  Ref list(PyList_New(0));
  for (size_t at = 0; list && at < graph.steps.size(); ++at) {
    const GraphStep& step = graph.steps[at];
    const bool is_further = step.application != static_cast<int>(at);
    Ref args(PyTuple_New(is_further ? 1 : step.count));
    if (!args) return Ref();
    for (int i = 0; i < (is_further ? 1 : step.count); ++i) {
      PyObject* number = PyLong_FromLong(is_further ? ~step.application : graph.args[step.first + i]);
      if (!number) return Ref();
      PyTuple_SET_ITEM(args.get(), i, number);
    }
    Ref pair(PyTuple_Pack(2, step.output, args.get()));
    if (!pair || PyList_Append(list.get(), pair.get()) < 0) return Ref();
  }
  return list;
}

// The entry of a graph that was not seen before.
std::shared_ptr<Entry> made_entry(const Graph& graph) {
  Ref all = list_of(graph.entries), nodes = list_of(graph.nodes), leaves = list_of(graph.leaves);
  Ref steps = steps_of(graph), wanted = list_of(graph.wanted);
  if (!all || !nodes || !leaves || !steps || !wanted) return nullptr;
  // (program, its machine, seconds to interpret it), or None if it is not for this code
  Ref known(PyObject_CallFunctionObjArgs(objects.program_of, all.get(), steps.get(), nodes.get(), leaves.get(),
                                         wanted.get(), nullptr));
  if (!known) return nullptr;
  auto entry = std::make_shared<Entry>();
  for (const GraphStep& step : graph.steps) entry->outputs.push_back(Ref::to(step.output));
  if (known.get() != Py_None) {
    entry->is_usable = true;
    entry->program = Ref::to(PyTuple_GET_ITEM(known.get(), 0));
    entry->machine = Ref::to(PyTuple_GET_ITEM(known.get(), 1));
    entry->interpreting = PyFloat_AsDouble(PyTuple_GET_ITEM(known.get(), 2));
    if (PyErr_Occurred()) return nullptr;
  }
  return entry;
}

std::shared_ptr<Entry> entry_of(Graph& graph) {
  const Words& key = graph.key();
  if (const auto found = entries.find(key); found != entries.end()) return found->second;
  std::shared_ptr<Entry> entry = made_entry(graph);
  if (!entry) return nullptr;
  if (entries.size() >= kMostEntries) entries.clear();
  return entries[key] = entry;
}

// The seconds that compiling a program takes; negative with an exception. A graph is cut into segments for it, so it is
// worked out only once so much is spent as it takes at least.
double compiling_seconds(Entry& entry) {
  if (entry.compiling < 0) {
    const Ref compiled(PyObject_GetAttrString(entry.program.get(), "compiled"));
    const Ref seconds(compiled ? PyObject_GetAttrString(compiled.get(), "seconds") : nullptr);
    if (seconds) entry.compiling = PyFloat_AsDouble(seconds.get());
  }
  return entry.compiling;
}

// Count a run as spent, if interpreting once more costs less than compiling; false if the program is to be compiled.
bool rents(Entry& entry) {
  const ProgramClass& p = objects.program;
  const double spent = PyFloat_AsDouble(p.spent.get(entry.program.get())) + entry.interpreting;
  if (spent >= PyFloat_AsDouble(objects.program_seconds) && spent >= compiling_seconds(entry)) return false;
  Ref sum(PyFloat_FromDouble(spent));
  Ref runs(PyLong_FromLong(PyLong_AsLong(p.runs.get(entry.program.get())) + 1));
  if (!sum || !runs) return false;
  p.spent.set(entry.program.get(), sum.get());
  p.runs.set(entry.program.get(), runs.get());
  return true;
}

// --- running --------------------

// A graph that a flush fills, and that keeps its memory for the next flush: a dozen allocations took a tenth of the
// time of a small one. A flush within a flush, as by a finalizer, has a graph of its own.
class Scratch {
 public:
  Scratch() : graph_(spare_ ? std::move(spare_) : std::make_unique<Graph>()) {}
  ~Scratch() {
    graph_->clear();
    if (!spare_) spare_ = std::move(graph_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Graph& graph() { return *graph_; }

 private:
  static thread_local std::unique_ptr<Graph> spare_;
  std::unique_ptr<Graph> graph_;
};
thread_local std::unique_ptr<Graph> Scratch::spare_;

// The contents of the leaves: NumPy arrays and Python numbers. False, with or without an error, if one is not there.
bool read_leaves(Graph& graph) {
  for (PyObject* leaf : graph.leaves) {
    PyObject* content = objects.value.content.get(leaf);
    if (Py_TYPE(content) == objects.ndarray || objects.aval.weak.is(objects.value.aval.get(leaf), Py_True)) {
      graph.contents.push_back(Ref::to(content));
    } else {
      Ref array(PyObject_CallOneArg(objects.leaf_array, leaf));
      if (!array || array.get() == Py_None) return false;
      graph.contents.push_back(std::move(array));
    }
    graph.inputs.push_back(graph.contents.back().get());
  }
  return true;
}

// The lock of planning, while this lives; false with an exception.
class Lock {
 public:
  Lock() : is_held_(static_cast<bool>(Ref(PyObject_CallNoArgs(objects.acquire)))) {}
  ~Lock() {
    if (is_held_) Ref(PyObject_CallNoArgs(objects.release));
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  explicit operator bool() const { return is_held_; }

 private:
  bool is_held_;
};

// Give the outputs their arrays, and let go of what is not needed any more.
void store(const Graph& graph, const std::vector<PyObject*>& results) {
  const ValueClass& v = objects.value;
  for (size_t at = 0; at < graph.wanted.size(); ++at) {
    PyObject* value = graph.entries[graph.wanted[at]];
    if (v.content.is(value, objects.not_computed)) v.content.set(value, results[at]);
  }
  // Only now: what dies with the inputs may have a finalizer that reads the outputs.
  for (const int number : graph.wanted) {
    PyObject* value = graph.entries[number];
    if (!is_taped(value)) {
      v.inputs.set(value, objects.empty);
      v.extras.set(value, objects.empty);
    }
  }
}

// Compute the living values; false if they need the flush in Python, or with an error.
bool compute(const std::vector<Ref>& living, bool always) {
  Scratch scratch;
  Graph& graph = scratch.graph();
  if (!graph.number(living) || !graph.choose()) return false;
  if (graph.wanted.empty()) return true;
  const std::shared_ptr<Entry> entry = entry_of(graph);
  if (!entry || !entry->is_usable) return false;
  if (!read_leaves(graph) || !(always || rents(*entry))) return false;
  graph.results.assign(graph.wanted.size(), nullptr);
  if (!run(entry->machine.get(), graph.inputs.data(), graph.results.data())) return false;
  // If a check has failed, the flush in Python keeps what is in doubt apart. Values are stored under the lock of
  // planning: another thread may be planning the same ones, and go by their inputs.
  bool is_good = graph.confirm(graph.results);
  if (is_good) {
    const Lock lock;
    is_good = static_cast<bool>(lock);
    if (is_good) store(graph, graph.results);
  }
  for (PyObject* result : graph.results) Py_DECREF(result);
  return is_good;
}

// Move the living values out of a list, in order. Dead ones are dropped last to first: whole graphs fall.
std::vector<Ref> taken(PyObject* pending) {
  std::vector<Ref> living;
  while (const Py_ssize_t size = PyList_GET_SIZE(pending)) {
    Ref value = Ref::to(PyList_GET_ITEM(pending, size - 1));
    PyList_SetSlice(pending, size - 1, size, nullptr);
    if (objects.value.content.is(value.get(), objects.not_computed) && Py_REFCNT(value.get()) > 1) {
      living.push_back(std::move(value));
    }
  }
  return {std::make_move_iterator(living.rbegin()), std::make_move_iterator(living.rend())};
}

// Make values the first ones of a list again.
bool put_back(std::vector<Ref>& values, PyObject* pending) {
  Ref list(PyList_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t at = 0; list && at < values.size(); ++at) {
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(at), values[at].release());
  }
  return list && PyList_SetSlice(pending, 0, 0, list.get()) == 0;
}

// Whether nobody looks on as programs run.
bool is_unseen() {
  if (PyDict_GET_SIZE(objects.ledgers)) return false;
  const Ref all(PyObject_GetAttr(objects.listeners, all_name)),
      recorder(PyObject_GetAttr(objects.flight, recorder_name));
  return all && recorder && PyTuple_GET_SIZE(all.get()) == 0 && recorder.get() == Py_None;
}

// Whether a list may be flushed here, and whether its program is interpreted however often it runs.
bool is_small(PyObject* pending, bool& always) {
  const PendingClass& p = objects.pending;
  if (PyList_GET_SIZE(pending) > PyLong_AsSsize_t(objects.longest) || PyTuple_GET_SIZE(p.watches.get(pending)) ||
      !is_unseen()) {
    return false;
  }
  const Ref tier(PyObject_CallOneArg(objects.tier_of, objects.cpu));
  if (!tier) return false;
  always = PyUnicode_CompareWithASCIIString(tier.get(), "interpreted") == 0;
  return PyUnicode_CompareWithASCIIString(tier.get(), "compiled") != 0;
}

// flush(pending): whether the living values are computed; if not, they are in the list as before
PyObject* flush(PyObject*, PyObject* pending) {
  if (Py_TYPE(pending) != objects.pending.type) {
    PyErr_SetString(PyExc_TypeError, "flush: expected a list of pending values");
    return nullptr;
  }
  if (flush_small(pending)) Py_RETURN_TRUE;
  return PyErr_Occurred() ? nullptr : Py_NewRef(Py_False);
}

PyObject* forget_programs(PyObject*, PyObject*) {
  entries.clear();
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"flush", flush, METH_O, nullptr},
    {"forget_programs", forget_programs, METH_NOARGS, nullptr},
    {},
};

}  // namespace

bool flush_small(PyObject* pending) {
  bool always = false;
  if (!is_small(pending, always)) return false;
  std::vector<Ref> living = taken(pending);
  if (living.empty() || compute(living, always)) return true;
  // What failed will fail in Python, too, which makes good what can be made good. A signal is nobody's failure.
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  if (!put_back(living, pending) && type) PyErr_Clear();
  if (type) PyErr_Restore(type, error, trace);
  return false;
}

bool init_flush(PyObject* module) {
  all_name = PyUnicode_InternFromString("all");
  recorder_name = PyUnicode_InternFromString("recorder");
  return all_name && recorder_name && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
