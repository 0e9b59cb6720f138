// Parts of a tensor: twins of `getitem` (`weft/_tensor/subscript.py`), of `slices` (`weft/_tensor/pieces.py`) and of
// `select`, `narrow`, `unbind`, `split` and `chunk` (`weft/_tensor/composite/shape.py`).

#include <algorithm>
#include <unordered_map>

#include "views.h"

namespace weft {
namespace {

constexpr const char* kNames[] = {"select", "slice_dim", "unsqueeze", "alias"};  // of rows

// --- calls of steps -----------------------------------------------------------------------------------------------

struct StaticPart {
  Row row;
  Py_ssize_t dim, length, step;
  bool operator==(const StaticPart&) const = default;
};
struct HashOfStatic {
  size_t operator()(const StaticPart& s) const {
    size_t hash = static_cast<size_t>(s.row);
    for (const Py_ssize_t number : {s.dim, s.length, s.step}) hash = hash * 1000003 + static_cast<size_t>(number);
    return hash;
  }
};

// The calls of steps by what they are, which no tensor is a part of. It is never destroyed, since Python may have ended
// by then, and is emptied when it has `kMostCalls` entries.
std::unordered_map<StaticPart, Ref, HashOfStatic>* step_calls;
constexpr size_t kMostCalls = 65536;

// The `Call` of a step; null with an exception.
Ref call_of_step(const Step& s) {
  const StaticPart key{s.row, s.dim, s.row == Row::kSlice ? s.length : 0, s.step};
  const auto found = step_calls->find(key);
  if (found != step_calls->end()) return found->second;
  const char* name = kNames[static_cast<int>(s.row)];
  Ref call(s.row == Row::kSlice   ? PyObject_CallFunction(objects.step_call, "snnn", name, s.dim, s.length, s.step)
           : s.row == Row::kAlias ? PyObject_CallFunction(objects.step_call, "s", name)
                                  : PyObject_CallFunction(objects.step_call, "sn", name, s.dim));
  if (!call) return call;
  if (step_calls->size() >= kMostCalls) step_calls->clear();
  step_calls->emplace(key, call);
  return call;
}

// Append a step that this file knows; false if Python has to look at it, since it is one too many, or with an
// exception.
bool add(Steps& steps, Row row, Py_ssize_t dim, Py_ssize_t start = 0, Py_ssize_t length = 0, Py_ssize_t by = 1) {
  if (steps.count == Steps::kMost) return false;
  Step& step = steps.steps[steps.count];
  step.row = row;
  step.dim = dim;
  step.start = start;
  step.length = length;
  step.step = by;
  step.call = call_of_step(step);
  if (!step.call) return false;
  if (row == Row::kSelect || row == Row::kSlice) {
    Ref position(PyLong_FromSsize_t(start));
    Ref value = position ? number(position.get()) : Ref();
    if (!value) return false;
    step.others = Ref(PyTuple_Pack(1, value.get()));
  } else {
    step.others = Ref::to(objects.empty);
  }
  steps.count += static_cast<bool>(step.others);
  return static_cast<bool>(step.others);
}

// --- indices ------------------------------------------------------------------------------------------------------

bool is_int_or_none(PyObject* x) { return x == Py_None || PyLong_CheckExact(x); }

// The sizes of the dims while steps are added.
struct Walk {
  Py_ssize_t sizes[64];
  Py_ssize_t ndim, dim = 0;

  explicit Walk(const Source& source) : ndim(source.ndim()) {
    for (Py_ssize_t at = 0; at < ndim; ++at) sizes[at] = source.size(at);
  }

  // Each adds what an item of an index takes; false for what Python has to look at, which is all that is out of range.
  bool select(Steps& steps, PyObject* item) {
    const Py_ssize_t index = PyLong_AsSsize_t(item);
    if (index == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    const Py_ssize_t size = sizes[dim];
    if (index < -size || index >= size) return false;
    if (!add(steps, Row::kSelect, dim, index < 0 ? index + size : index)) return false;
    for (Py_ssize_t at = dim + 1; at < ndim; ++at) sizes[at - 1] = sizes[at];
    --ndim;
    return true;
  }

  bool slice(Steps& steps, PyObject* item) {
    const PySliceObject* s = reinterpret_cast<PySliceObject*>(item);
    if (!is_int_or_none(s->start) || !is_int_or_none(s->stop) || !is_int_or_none(s->step)) return false;
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(item, &start, &stop, &step) < 0) {
      PyErr_Clear();
      return false;
    }
    if (step < 1) return false;
    const Py_ssize_t length = PySlice_AdjustIndices(sizes[dim], &start, &stop, step);
    if ((length != sizes[dim] || step != 1) && !add(steps, Row::kSlice, dim, start, length, step)) return false;
    sizes[dim++] = length;
    return true;
  }

  bool unsqueeze(Steps& steps) {
    if (ndim == 64 || !add(steps, Row::kUnsqueeze, dim)) return false;
    for (Py_ssize_t at = ndim; at > dim; --at) sizes[at] = sizes[at - 1];
    sizes[dim++] = 1;
    ++ndim;
    return true;
  }

  bool tensor(Steps& steps, Indices& indices, PyObject* item) {
    Source index;
    if (!index.find(item)) return false;
    if (objects.aval.dtype.is(index.aval(), objects.bool_)) return mask(indices, index);
    if (index.ndim()) return add_index(indices, index.value);
    PyObject* content = objects.value.content.get(index.value.get());
    if (Py_TYPE(content) != objects.ndarray) return false;  // its place is not known yet
    Ref position(PyObject_CallMethod(content, "item", nullptr));
    return position && PyLong_CheckExact(position.get()) && select(steps, position.get());
  }

 private:
  bool add_index(Indices& indices, Ref value) {
    if (indices.count == Indices::kMost) return false;
    indices.values[indices.count] = std::move(value);
    indices.dims[indices.count++] = dim++;
    return true;
  }

  // A mask stands for the coordinates of its true elements, which are read now.
  bool mask(Indices& indices, const Source& index) {
    if (dim + index.ndim() > ndim) return false;
    for (Py_ssize_t at = 0; at < index.ndim(); ++at) {
      if (index.size(at) != sizes[dim + at]) return false;
    }
    const Ref elements(PyObject_CallMethod(index.tensor, "_host", nullptr));
    if (!elements || Py_TYPE(elements.get()) != objects.ndarray) return false;
    const Ref places(PyArray_Nonzero(as_array(elements.get())));
    if (!places) return false;
    const npy_intp count = PyArray_SIZE(as_array(PyTuple_GET_ITEM(places.get(), 0)));
    const Ref aval(PyObject_CallFunction(objects.aval_of, "(n)O", static_cast<Py_ssize_t>(count), objects.int64));
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(places.get()); ++at) {
      Ref own(aval ? PyObject_CallOneArg(objects.copied_array, PyTuple_GET_ITEM(places.get(), at)) : nullptr);
      Ref value = own ? leaf(aval.get(), own.get(), 0) : Ref();
      if (!value) return false;
      if (!add_index(indices, std::move(value))) return false;
    }
    return true;
  }
};

// How many dims a tensor takes as an item of an index; 0 if Python has to look at it.
Py_ssize_t dims_taken(const Source& source, PyObject* item) {
  Source index;
  const AvalClass& a = objects.aval;
  if (!index.find(item) || a.device.get(index.aval()) != objects.cpu || a.device.get(source.aval()) != objects.cpu ||
      !a.names.is(index.aval(), Py_None) || !a.names.is(source.aval(), Py_None)) {
    return 0;
  }
  if (a.dtype.is(index.aval(), objects.bool_)) return index.ndim();
  return a.dtype.is(index.aval(), objects.int64) || a.dtype.is(index.aval(), objects.int32);
}

}  // namespace

Ref Indices::key() const {
  Ref key(PyTuple_New(count));
  for (Py_ssize_t at = 0; key && at < count; ++at) {
    PyObject* dim = PyLong_FromSsize_t(dims[at]);
    if (!dim) return Ref();
    PyTuple_SET_ITEM(key.get(), at, dim);
  }
  return key;
}

bool steps_of(const Source& source, PyObject* index, Steps& steps, Indices* indices) {
  const bool is_tuple = PyTuple_CheckExact(index);
  PyObject* const* items = is_tuple ? reinterpret_cast<PyTupleObject*>(index)->ob_item : &index;
  const Py_ssize_t count = is_tuple ? PyTuple_GET_SIZE(index) : 1;
  Py_ssize_t taken = 0;
  for (Py_ssize_t at = 0; at < count; ++at) {
    if (PyLong_CheckExact(items[at]) || PySlice_Check(items[at])) {
      ++taken;
    } else if (items[at] != Py_None && items[at] != Py_Ellipsis) {
      const Py_ssize_t dims = dims_taken(source, items[at]);
      if (!dims) return false;
      taken += dims;
    }
  }
  if (taken > source.ndim()) return false;
  Walk walk(source);
  Py_ssize_t skipped = source.ndim() - taken;
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyObject* item = items[at];
    bool done = true;
    if (item == Py_Ellipsis) {
      walk.dim += std::exchange(skipped, 0);  // a second ellipsis stands for no dims
    } else if (item == Py_None) {
      done = walk.unsqueeze(steps);
    } else {
      done = PyLong_CheckExact(item) ? walk.select(steps, item)
             : PySlice_Check(item)   ? walk.slice(steps, item)
                                     : walk.tensor(steps, *indices, item);
    }
    if (!done) return false;
  }
  return true;
}

namespace {

// The elements at index tensors, of what some steps lead to. Null if Python has to record it, or with an exception.
PyObject* taken_at(const Source& source, Steps& steps, const Indices& indices, PyObject* state) {
  const Ref dims = indices.key();
  const Ref calls = dims ? Ref::to(PyDict_GetItemWithError(objects.index_calls, dims.get())) : Ref();
  if (!calls || !type_after(source, steps)) return nullptr;
  const Ref value = value_after(source, steps, state);
  Ref inputs(value ? PyTuple_New(1 + indices.count) : nullptr);
  if (!inputs) return nullptr;
  PyTuple_SET_ITEM(inputs.get(), 0, Py_NewRef(value.get()));
  for (Py_ssize_t at = 0; at < indices.count; ++at) {
    PyTuple_SET_ITEM(inputs.get(), 1 + at, Py_NewRef(indices.values[at].get()));
  }
  const Ref values = try_apply(PyTuple_GET_ITEM(calls.get(), 0), inputs.get());
  return values ? wrapped(PyTuple_GET_ITEM(values.get(), 0)) : nullptr;
}

// --- functions of the module: None if Python has to do it ---------------------------------------------------------

// getitem(x, index)
PyObject* getitem(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Source source;
  if (count != 2 || !source.find(args[0])) return none();
  const Ref state = simple_state();
  Steps steps;
  Indices indices;
  if (!state || !steps_of(source, args[1], steps, &indices)) return none();
  if (indices.count) return or_none(taken_at(source, steps, indices, state.get()));
  if (!steps.count && !add(steps, Row::kAlias, 0)) return none();
  return or_none(view_through(source, steps, state.get()));
}

// Find a dim that is given as an int; false if it is none of the source's.
bool find_dim(const Source& source, PyObject* given, Py_ssize_t& dim) {
  if (!PyLong_CheckExact(given)) return false;
  dim = PyLong_AsSsize_t(given);
  if (dim == -1 && PyErr_Occurred()) PyErr_Clear();
  if (dim < 0) dim += source.ndim();
  return dim >= 0 && dim < source.ndim();
}

bool find_int(PyObject* given, Py_ssize_t& number) {
  if (!PyLong_CheckExact(given)) return false;
  number = PyLong_AsSsize_t(given);
  if (number != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

// select(input, dim, index)
PyObject* select(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Source source;
  Py_ssize_t dim;
  if (count != 3 || !source.find(args[0]) || !find_dim(source, args[1], dim)) return none();
  const Ref state = simple_state();
  Steps steps;
  Walk walk(source);
  walk.dim = dim;
  if (!state || !PyLong_CheckExact(args[2]) || !walk.select(steps, args[2])) return none();
  return or_none(view_through(source, steps, state.get()));
}

// The part of these slices along a dim; null if Python has to make it, or with an exception.
PyObject* part(PyObject* x, Py_ssize_t dim, Py_ssize_t start, Py_ssize_t length) {
  Source source;
  if (!source.find(x)) return nullptr;
  const Ref state = simple_state();
  Steps steps;
  return state && add(steps, Row::kSlice, dim, start, length) ? view_through(source, steps, state.get()) : nullptr;
}

// The same without that dim, for one position.
PyObject* slice_at(PyObject* x, Py_ssize_t dim, Py_ssize_t at) {
  Source source;
  if (!source.find(x)) return nullptr;
  const Ref state = simple_state();
  Steps steps;
  return state && add(steps, Row::kSelect, dim, at) ? view_through(source, steps, state.get()) : nullptr;
}

// narrow(input, dim, start, length)
PyObject* narrow(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Source source;
  Py_ssize_t dim, start, length;
  if (count != 4 || !source.find(args[0]) || !find_dim(source, args[1], dim) || !find_int(args[2], start) ||
      !find_int(args[3], length)) {
    return none();
  }
  const Py_ssize_t size = source.size(dim);
  if (start < 0) start += size;
  if (length < 0 || start < 0 || length > size - start) return none();
  return or_none(part(args[0], dim, start, length));
}

// A tuple of so many tensors; null if Python has to make one of them, or with an exception.
template <class F>
PyObject* each(Py_ssize_t count, F make) {
  Ref parts(PyTuple_New(count));
  for (Py_ssize_t at = 0; parts && at < count; ++at) {
    PyObject* one = make(at);
    if (!one) return nullptr;
    PyTuple_SET_ITEM(parts.get(), at, one);
  }
  return parts.release();
}

// Parts of one length but for the last.
PyObject* even(PyObject* x, Py_ssize_t dim, Py_ssize_t size, Py_ssize_t length) {
  return each((size + length - 1) / length,
              [&](Py_ssize_t at) { return part(x, dim, at * length, std::min(length, size - at * length)); });
}

// unbind(input, dim)
PyObject* unbind(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Source source;
  Py_ssize_t dim;
  if (count != 2 || !source.find(args[0]) || !find_dim(source, args[1], dim)) return none();
  return or_none(each(source.size(dim), [&](Py_ssize_t at) { return slice_at(args[0], dim, at); }));
}

// chunk(input, chunks, dim)
PyObject* chunk(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Source source;
  Py_ssize_t chunks, dim;
  if (count != 3 || !source.find(args[0]) || !find_int(args[1], chunks) || !find_dim(source, args[2], dim)) {
    return none();
  }
  const Py_ssize_t size = source.size(dim);
  if (chunks <= 0 || !size) return none();
  return or_none(even(args[0], dim, size, (size + chunks - 1) / chunks));
}

// split(input, sizes, dim, None)
PyObject* split(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Source source;
  Py_ssize_t dim, step;
  if (count != 4 || args[3] != Py_None || !source.find(args[0]) || !find_dim(source, args[2], dim)) return none();
  const Py_ssize_t size = source.size(dim);
  if (PyLong_CheckExact(args[1])) {
    if (!size || !find_int(args[1], step) || step <= 0) return none();
    return or_none(even(args[0], dim, size, step));
  }
  if (!PyList_CheckExact(args[1]) && !PyTuple_CheckExact(args[1])) return none();
  Ref sizes(PySequence_Tuple(args[1]));  // a list may change while its parts are made
  if (!sizes) return nullptr;
  Py_ssize_t rest = size;
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(sizes.get()); ++at) {
    if (!find_int(PyTuple_GET_ITEM(sizes.get(), at), step) || step < 0 || step > rest) return none();
    rest -= step;
  }
  if (rest) return none();
  Py_ssize_t start = 0;
  return or_none(each(PyTuple_GET_SIZE(sizes.get()), [&](Py_ssize_t at) {
    const Py_ssize_t length = PyLong_AsSsize_t(PyTuple_GET_ITEM(sizes.get(), at));
    return part(args[0], dim, std::exchange(start, start + length), length);
  }));
}

// --- slices, one after the other ----------------------------------------------------------------------------------

struct Slices {
  PyObject_HEAD PyObject* tensor;
  Py_ssize_t dim, at, count;
};

PyObject* slices_next(PyObject* self) {
  Slices& slices = *reinterpret_cast<Slices*>(self);
  if (slices.at >= slices.count) return nullptr;
  const Py_ssize_t at = slices.at++;
  PyObject* view = slice_at(slices.tensor, slices.dim, at);
  if (view || PyErr_Occurred()) return view;
  return PyObject_CallFunction(objects.slice_at, "Onn", slices.tensor, slices.dim, at);
}

void slices_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_XDECREF(reinterpret_cast<Slices*>(self)->tensor);
  PyObject_GC_Del(self);
}

int slices_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Slices*>(self)->tensor);
  return 0;
}

PyTypeObject slices_type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "weft._native.Slices",
    .tp_basicsize = sizeof(Slices),
    .tp_dealloc = slices_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The slices of a tensor along a dim; each is made when it is its turn.",
    .tp_traverse = slices_traverse,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = slices_next,
};

PyObject* new_slices(PyObject* tensor, Py_ssize_t dim, Py_ssize_t count) {
  Slices* self = PyObject_GC_New(Slices, &slices_type);
  if (!self) return nullptr;
  self->tensor = Py_NewRef(tensor);
  self->dim = dim;
  self->at = 0;
  self->count = count;
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

// slices(x, dim, count)
PyObject* slices(PyObject*, PyObject* args) {
  PyObject* tensor;
  Py_ssize_t dim, count;
  if (!PyArg_ParseTuple(args, "Onn", &tensor, &dim, &count)) return nullptr;
  return new_slices(tensor, dim, count);
}

// iterate(x): the slices along the first dim; None if Python has to look at it
PyObject* iterate(PyObject*, PyObject* x) {
  Source source;
  if (!source.find(x) || !source.ndim() || !simple_state()) return none();
  return new_slices(x, 0, source.size(0));
}

PyMethodDef functions[] = {
    {"getitem", method(getitem), METH_FASTCALL, nullptr},
    {"select", method(select), METH_FASTCALL, nullptr},
    {"narrow", method(narrow), METH_FASTCALL, nullptr},
    {"unbind", method(unbind), METH_FASTCALL, nullptr},
    {"chunk", method(chunk), METH_FASTCALL, nullptr},
    {"split", method(split), METH_FASTCALL, nullptr},
    {"slices", slices, METH_VARARGS, nullptr},
    {"iterate", iterate, METH_O, nullptr},
    {},
};

}  // namespace

bool init_parts(PyObject* module) {
  step_calls = new std::unordered_map<StaticPart, Ref, HashOfStatic>;
  return PyType_Ready(&slices_type) == 0 && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
