// Numbering small graphs: as in `weft/_lazy/plan.py`, which is the reference, what anything but the graph refers to is
// an output, and what a derivative will read is one, too.

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "graph.h"
#include "objects.h"

namespace weft {
namespace {

constexpr size_t kMostReads = 65536;

// What the derivative of an application reads, by its output and the inputs that gradients flow to.
struct Reads {
  Ref output;
  std::vector<int> inputs, outputs;
};
// Never destroyed: at the end of the process, there is no interpreter any more to count references.
auto& known_reads = *new std::unordered_map<Words, std::unique_ptr<Reads>, Hash>;

// The check whose code says whether an application's inputs are good, borrowed; null if there is none to be read.
PyObject* unread_check(PyObject* value) {
  PyObject* doubt = objects.value.doubt.get(value);
  if (!doubt || doubt == Py_None) return nullptr;
  PyObject* check = objects.doubt.check.get(doubt);
  return objects.check.passed.is(check, Py_True) ? nullptr : check;
}

const Reads* reads_of(PyObject* value) {
  PyObject* inputs = objects.value.inputs.get(value);
  PyObject* output = objects.value.origin.get(value);
  Words key{reinterpret_cast<int64_t>(output)};
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(inputs); ++at) {
    if (at % 64 == 0) key.push_back(0);
    if (!objects.value.role.is(PyTuple_GET_ITEM(inputs, at), Py_None)) key.back() |= int64_t{1} << at % 64;
  }
  std::unique_ptr<Reads>& place = known_reads[key];
  if (!place) {
    auto reads = std::make_unique<Reads>();
    reads->output = Ref::to(output);
    Ref pair(PyObject_CallOneArg(objects.reads, value));
    if (!pair) return nullptr;
    for (int side = 0; side < 2; ++side) {
      Ref positions(PySequence_Fast(PyTuple_GET_ITEM(pair.get(), side), "expected positions"));
      if (!positions) return nullptr;
      for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(positions.get()); ++at) {
        const int position = static_cast<int>(PyLong_AsLong(PySequence_Fast_GET_ITEM(positions.get(), at)));
        (side ? reads->outputs : reads->inputs).push_back(position);
      }
    }
    if (known_reads.size() >= kMostReads) known_reads.clear();
    known_reads[key] = std::move(reads);  // looked up again: what Python has run may have made others
    return known_reads[key].get();
  }
  return place.get();
}

}  // namespace

bool is_taped(PyObject* value) {
  PyObject* role = objects.value.role.get(value);
  if (role == Py_None || !PyObject_TypeCheck(role, objects.interior) || PyObject_TypeCheck(role, objects.freed)) {
    return false;
  }
  PyObject* inputs = objects.value.inputs.get(value);
  if (Py_TYPE(inputs) != objects.shared) return true;
  Ref spent(PyObject_GetAttrString(inputs, "spent"));
  if (!spent) PyErr_Clear();
  return spent.get() != Py_True;
}

bool Graph::enter(PyObject* leaf) {
  if (objects.value.content.is(leaf, objects.not_computed)) return false;  // recorded elsewhere
  numbers_.set(leaf, static_cast<int>(entries.size()));
  entries.push_back(leaf);
  leaves.push_back(leaf);
  held_.push_back(Ref::to(leaf));
  uses.push_back(0);
  return true;
}

bool Graph::number(const std::vector<Ref>& values) {
  const ValueClass& v = objects.value;
  numbers_.reset(3 * values.size());
  shared_.reset(0);
  for (const Ref& ref : values) {
    PyObject* value = ref.get();
    PyObject* origin = v.origin.get(value);
    if (Py_TYPE(origin) != objects.output.type) return false;
    if (!objects.aval.device.is(v.aval.get(value), objects.cpu)) return false;
    PyObject* signature = objects.output.signature.get(origin);
    const bool alone = objects.output.alone.is(origin, Py_True);
    if (!alone && !objects.signature.requirement.is(signature, Py_None)) {
      PyObject* check = unread_check(value);
      if (check && std::find(checks.begin(), checks.end(), check) == checks.end()) checks.push_back(check);
    }

    PyObject* inputs = v.inputs.get(value);
    GraphStep step{origin, static_cast<int>(args.size()), 0, static_cast<int>(steps.size())};
    const int before = alone ? -1 : shared_.of(inputs);
    if (before >= 0 && objects.output.signature.get(steps[before].output) == signature) {
      step.application = before;
    } else {
      step.count = static_cast<int>(PyTuple_GET_SIZE(inputs));
      for (Py_ssize_t at = 0; at < step.count; ++at) {
        PyObject* input = PyTuple_GET_ITEM(inputs, at);
        if (numbers_.of(input) < 0 && !enter(input)) return false;
        const int number = numbers_.of(input);
        if (before < 0) ++uses[number];  // a tuple that several share refers once to each
        args.push_back(number);
      }
      if (!alone) shared_.set(inputs, static_cast<int>(steps.size()));
    }
    steps.push_back(step);
    PyObject* role = v.role.get(value);
    if (role != Py_None && role != objects.freed_role) taped_ = true;
    if (PyTuple_GET_SIZE(v.extras.get(value))) with_extras_.push_back(value);
    numbers_.set(value, static_cast<int>(entries.size()));
    node_numbers.push_back(static_cast<int>(entries.size()));
    entries.push_back(value);
    nodes.push_back(value);
    uses.push_back(0);
  }
  return true;
}

// Choose the outputs: what anything but the graph refers to, and what a derivative will read.
bool Graph::choose() {
  for (PyObject* value : with_extras_) {
    PyObject* extras = objects.value.extras.get(value);
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(extras); ++at) {
      if (const int number = number_in(extras, at); number >= 0) ++uses[number];
    }
  }
  std::vector<char>& kept = kept_;
  kept.assign(entries.size(), 0);
  for (size_t at = 0; at < nodes.size(); ++at) {
    const int number = node_numbers[at];
    kept[number] = Py_REFCNT(nodes[at]) - uses[number] > 1;  // one is that of the list of values
  }
  if (taped_ && !keep_for_derivatives(kept)) return false;
  for (const int number : node_numbers) {
    if (kept[number]) wanted.push_back(number);
  }
  return true;
}

bool Graph::confirm(const std::vector<PyObject*>& results) const {
  for (PyObject* check : checks) {
    PyObject* code = objects.check.code.get(check);
    const int number = code == Py_None ? -1 : numbers_.of(code);
    const auto at = std::find(wanted.begin(), wanted.end(), number);
    PyObject* codes = at == wanted.end() ? Py_None : results[static_cast<size_t>(at - wanted.begin())];
    const Ref passed(PyObject_CallFunctionObjArgs(objects.has_passed, check, codes, nullptr));
    if (!passed || passed.get() != Py_True) return false;
  }
  return true;
}

bool Graph::keep_for_derivatives(std::vector<char>& kept) const {
  std::vector<char> reached = kept;
  for (size_t at = nodes.size(); at-- > 0;) {
    PyObject* value = nodes[at];
    if (!reached[node_numbers[at]] || !is_taped(value)) continue;
    const Ref inputs_held = Ref::to(objects.value.inputs.get(value)),
              extras_held = Ref::to(objects.value.extras.get(value));
    PyObject *inputs = inputs_held.get(), *extras = extras_held.get();
    if (!objects.value.content.is(value, objects.not_computed)) return false;  // another thread has computed it
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) reached[number_in(inputs, i)] = 1;
    const Reads* reads = reads_of(value);
    if (!reads) return false;
    for (const int i : reads->inputs) kept[number_in(inputs, i)] = 1;
    PyObject* origin = objects.value.origin.get(value);
    const long index = PyLong_AsLong(objects.output.index.get(origin));
    const long main = PyLong_AsLong(objects.signature.main.get(objects.output.signature.get(origin)));
    for (const int i : reads->outputs) {
      if (i == index) {
        kept[node_numbers[at]] = 1;
      } else if (i >= main && PyTuple_GET_SIZE(extras) > i - main) {
        if (const int number = number_in(extras, i - main); number >= 0) kept[number] = 1;
      }
    }
  }
  return true;
}

const Words& Graph::key() {
  for (const GraphStep& step : steps) {
    key_.push_back(reinterpret_cast<int64_t>(step.output));
    key_.push_back(-1 - (step.count ? step.count : step.application));
    for (int at = 0; at < step.count; ++at) key_.push_back(args[step.first + at]);
  }
  key_.push_back(-1);
  key_.insert(key_.end(), wanted.begin(), wanted.end());
  return key_;
}

void Graph::clear() {
  for (auto* list : {&entries, &nodes, &leaves, &checks, &inputs, &results, &with_extras_}) list->clear();
  for (auto* list : {&node_numbers, &args, &uses, &wanted}) list->clear();
  steps.clear();
  key_.clear();
  taped_ = false;
  contents.clear();
  held_.clear();
}

}  // namespace weft
