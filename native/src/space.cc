// Steps as loops over iteration spaces, and the running of these.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "machine.h"
#include "python.h"

namespace weft {
namespace {

constexpr int kMostOperands = 16;
constexpr int kMostDims = 64;

// The strides of a register whose dims are broadcast to a shape.
Sizes strides_in(const Register& shown, const Sizes& shape) {
  Sizes strides(shape.size(), 0);
  const std::size_t lead = shape.size() - shown.shape.size();
  for (std::size_t d = 0; d < shown.shape.size(); ++d) {
    if (shown.shape[d] != 1) strides[lead + d] = shown.strides[d];
  }
  return strides;
}

// A space of a shape without dims of size 1, with those dims joined over which all operands go on evenly.
struct Space {
  Sizes dims;
  std::vector<Sizes> strides;  // by dim, then by operand
  std::vector<bool> marks;     // dims that are marked differently are not joined
};

Space space_of(const Sizes& shape, const std::vector<Sizes>& operands, const std::vector<std::size_t>& order,
               const std::vector<bool>& marks = {}) {
  Space space;
  for (const std::size_t d : order) {
    if (shape[d] == 1) continue;
    const bool mark = !marks.empty() && marks[d];
    bool joins = !space.dims.empty() && space.marks.back() == mark;
    for (std::size_t i = 0; i < operands.size() && joins; ++i) {
      joins = space.strides.back()[i] == operands[i][d] * shape[d];
    }
    Sizes strides(operands.size());
    for (std::size_t i = 0; i < operands.size(); ++i) strides[i] = operands[i][d];
    if (joins) {
      space.dims.back() *= shape[d];
      space.strides.back() = std::move(strides);
    } else {
      space.dims.push_back(shape[d]);
      space.strides.push_back(std::move(strides));
      space.marks.push_back(mark);
    }
  }
  return space;
}

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// A loop over a space. A function that is given one element sees strides of 0, as from NumPy: that of `power` has cases
// for an exponent that does not change.
Loop loop_over(Space space, const std::vector<const Register*>& operands) {
  Loop loop;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const npy_intp stride = space.dims.empty() ? 0 : space.strides.back()[i];
    loop.operands.push_back({operands[i]->buffer, operands[i]->offset, stride});
  }
  if (!space.dims.empty()) {
    loop.inner = space.dims.back();
    space.dims.pop_back();
    space.strides.pop_back();
  }
  loop.dims = std::move(space.dims);
  loop.strides = std::move(space.strides);
  return loop;
}

// Calls `body(pointers)` for each position in a loop's dims before the last.
template <typename Body>
void each(const Loop& loop, char* const* bases, const Body& body) {
  char* at[kMostOperands];
  const std::size_t count = loop.operands.size();
  for (std::size_t i = 0; i < count; ++i) at[i] = bases[loop.operands[i].buffer] + loop.operands[i].offset;
  for (const Start& start : loop.starts) {
    const npy_intp number = *reinterpret_cast<const npy_intp*>(bases[start.buffer] + start.offset);
    at[loop.moved] += std::clamp<npy_intp>(number, 0, start.most) * start.bytes;
  }
  const std::size_t dims = loop.dims.size();
  if (dims == 0) {
    body(at, nullptr);
    return;
  }
  npy_intp place[kMostDims] = {};
  if (std::find(loop.dims.begin(), loop.dims.end(), 0) != loop.dims.end()) return;
  while (true) {
    body(at, place);
    std::size_t d = dims;
    while (d-- > 0) {
      if (++place[d] < loop.dims[d]) {
        for (std::size_t i = 0; i < count; ++i) at[i] += loop.strides[d][i];
        break;
      }
      place[d] = 0;
      for (std::size_t i = 0; i < count; ++i) at[i] -= loop.strides[d][i] * (loop.dims[d] - 1);
      if (d == 0) return;
    }
  }
}

void call(const Loop& loop, char* const* at, npy_intp n, const npy_intp* strides) {
  char* args[kMostOperands];
  std::copy_n(at, loop.operands.size(), args);
  loop.found.function(args, &n, strides, loop.found.data);
}

// Makes the last of the outer dims that of the rows.
void take_rows(Loop& loop) {
  if (loop.dims.empty()) return;
  loop.rows = loop.dims.back();
  for (std::size_t i = 0; i < loop.operands.size(); ++i) loop.operands[i].row = loop.strides.back()[i];
  loop.dims.pop_back();
  loop.strides.pop_back();
}

// Where the part that a step reads or writes begins.
std::vector<Start> starts_of(const std::vector<Register>& registers, const Step& step) {
  std::vector<Start> starts;
  for (std::size_t i = 1; i < step.ins.size(); ++i) {
    PyObject* along = PyTuple_GetItem(step.payload.get(), static_cast<Py_ssize_t>(i) - 1);
    const Register& number = registers[step.ins[i]];
    Start start{.buffer = number.buffer, .offset = number.offset};
    if (!along || !PyArg_ParseTuple(along, "nn", &start.most, &start.bytes)) throw PythonError();
    starts.push_back(start);
  }
  return starts;
}

void inner_strides(const Loop& loop, npy_intp* strides) {
  for (std::size_t i = 0; i < loop.operands.size(); ++i) strides[i] = loop.operands[i].stride;
}

}  // namespace

npy_intp Register::count() const {
  return std::accumulate(shape.begin(), shape.end(), npy_intp{1}, std::multiplies<>());
}

bool Register::contiguous() const {
  npy_intp stride = itemsize();
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != stride) return false;
    stride *= shape[d];
  }
  return true;
}

void check_rows(Loop& loop, npy_intp itemsize) {
  for (const Operand& operand : loop.operands) {
    const bool may_stay = &operand != &loop.operands.back();
    const bool serves = operand.stride == itemsize || loop.inner == 1 || (may_stay && operand.stride == 0);
    if (!serves) loop.found.rows = nullptr;
  }
}

void run_rows(const Loop& loop, char* const* at, npy_intp rows, npy_intp columns) {
  const Operand &x = loop.operands[0], &y = loop.operands[1], &out = loop.operands[2];
  const Sheet sheet{rows, columns, at[0], at[1], at[2], x.row, y.row, out.row, x.stride != 0, y.stride != 0};
  if (loop.found.rows(loop.found.which, sheet)) return;
  const npy_intp strides[3] = {x.stride, y.stride, out.stride};
  for (npy_intp row = 0; row < rows; ++row) {
    char* const from[3] = {at[0] + row * x.row, at[1] + row * y.row, at[2] + row * out.row};
    call(loop, from, columns, strides);
  }
}

Found found_for(const std::vector<Register>& registers, const Step& step) {
  std::vector<PyArray_Descr*> types;
  for (const int number : step.ins) types.push_back(registers[number].descr());
  for (const int number : step.outs) types.push_back(registers[number].descr());
  switch (step.kind) {
    case Kind::copy:
    case Kind::read:
    case Kind::write:
      return copy_of(types.front(), types.back());
    case Kind::select:
      return select_of(registers[step.outs[0]].itemsize());
    case Kind::search: {
      int is_largest;
      npy_intp length;
      if (!PyArg_ParseTuple(step.payload.get(), "pn", &is_largest, &length)) throw PythonError();
      return search_of(types[0], is_largest != 0, length);
    }
    case Kind::accumulate: {
      PyObject* ufunc;
      npy_intp length, in, out;
      if (!PyArg_ParseTuple(step.payload.get(), "O!nnn", &PyUFunc_Type, &ufunc, &length, &in, &out))
        throw PythonError();
      return accumulation_of(reinterpret_cast<PyUFuncObject*>(ufunc), types[0], length, in, out);
    }
    case Kind::take: {
      npy_intp bytes, to_next;
      if (!PyArg_ParseTuple(step.payload.get(), "nn", &bytes, &to_next)) throw PythonError();
      return take_of(bytes, to_next);
    }
    case Kind::scatter: {
      PyObject* ufunc;
      npy_intp length, to_next;
      if (!PyArg_ParseTuple(step.payload.get(), "Onn", &ufunc, &length, &to_next)) throw PythonError();
      const bool combines = PyObject_TypeCheck(ufunc, &PyUFunc_Type);
      return scatter_of(combines ? reinterpret_cast<PyUFuncObject*>(ufunc) : nullptr, types[3], length, to_next);
    }
    case Kind::sort:
      return sort_of(types[0], step.payload.get() == Py_True, step.flags);
    case Kind::hash:
      return hash_found();
    case Kind::draw:
      return draw_of(registers[step.outs[0]].itemsize());
    case Kind::reduce:
      types = {types[1], types[0], types[1]};
      return loop_of(reinterpret_cast<PyUFuncObject*>(PyTuple_GET_ITEM(step.payload.get(), 0)), types.data());
    default:
      return loop_of(reinterpret_cast<PyUFuncObject*>(step.payload.get()), types.data());
  }
}

Loop loop_of_step(const std::vector<Register>& registers, const Step& step) {
  const Register& out = registers[step.outs[0]];
  const bool moves = step.kind == Kind::read || step.kind == Kind::write;
  std::vector<const Register*> operands;
  std::vector<Sizes> strides;
  for (const auto* numbers : {&step.ins, &step.outs}) {
    for (const int number : *numbers) {
      if (moves && numbers == &step.ins && !operands.empty()) break;  // what follows says where
      operands.push_back(&registers[number]);
      strides.push_back(strides_in(registers[number], out.shape));
    }
  }
  // The result's largest strides outermost: it lies as NumPy lets it, so that the operands are gone through in order.
  auto order = in_order(out.shape.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return out.strides[a] > out.strides[b]; });
  Loop loop = loop_over(space_of(out.shape, strides, order), operands);
  loop.found = found_for(registers, step);
  check_rows(loop, out.itemsize());
  if (loop.found.rows) take_rows(loop);
  if (moves) {
    loop.moved = step.kind == Kind::read ? 0 : 1;
    loop.starts = starts_of(registers, step);
  }
  return loop;
}

Reduction reduction_of(const std::vector<Register>& registers, const Step& step) {
  PyObject* payload = step.payload.get();
  const Register &in = registers[step.ins[0]], &out = registers[step.outs[0]];
  std::vector<bool> reduced(in.shape.size(), false);
  for (const int axis : numbers_from(PyTuple_GET_ITEM(payload, 1))) reduced[axis] = true;
  Sizes kept(in.shape.size(), 0);
  std::size_t at = 0;
  for (std::size_t d = 0; d < kept.size(); ++d) {
    if (!reduced[d]) kept[d] = out.strides[at++];
  }
  Space space = space_of(in.shape, {kept, in.strides, kept}, in_order(in.shape.size()), reduced);
  Reduction result;
  result.reduced = space.marks;
  if (space.dims.empty()) result.reduced = {true};
  result.loop = loop_over(std::move(space), {&out, &in, &out});
  result.loop.found = found_for(registers, step);
  PyObject* start = PyTuple_GET_ITEM(payload, 2);
  if (start != Py_None) result.start = Ref::to(start);
  result.copy = copy_of(in.descr(), out.descr());
  result.results = out.count();
  const bool is_by_rows = std::count(result.reduced.begin(), result.reduced.end(), true) == 1 &&
                          result.reduced.back() && result.loop.operands[1].stride == in.itemsize() && !result.start;
  if (result.loop.found.extremes && is_by_rows) {
    result.rows = result.loop;
    take_rows(result.rows);
  }
  return result;
}

ProductLoop product_of(const std::vector<Register>& registers, const Step& step) {
  const Register &left = registers[step.ins[0]], &right = registers[step.ins[1]], &out = registers[step.outs[0]];
  const std::size_t batch = out.shape.size() - 2;
  ProductLoop product;
  product.core[0] = left.shape[left.shape.size() - 2];
  product.core[1] = left.shape.back();
  product.core[2] = right.shape.back();
  std::vector<const Register*> operands = {&left, &right, &out};
  const Sizes shape(out.shape.begin(), out.shape.begin() + static_cast<std::ptrdiff_t>(batch));
  std::vector<Sizes> strides;
  for (std::size_t i = 0; i < 3; ++i) {
    const Register& shown = *operands[i];
    const std::size_t ndim = shown.shape.size();
    product.strides[2 * i] = shown.strides[ndim - 2];
    product.strides[2 * i + 1] = shown.strides[ndim - 1];
    Register matrices = shown;
    matrices.shape.resize(ndim - 2);
    strides.push_back(strides_in(matrices, shape));
  }
  product.loop = loop_over(space_of(shape, strides, in_order(batch)), operands);
  product.loop.found = found_for(registers, step);
  return product;
}

void run_loop(const Loop& loop, char* const* bases) {
  if (loop.inner == 0) return;
  if (loop.found.rows) {
    each(loop, bases, [&](char* const* at, const npy_intp*) { run_rows(loop, at, loop.rows, loop.inner); });
    return;
  }
  npy_intp strides[kMostOperands];
  inner_strides(loop, strides);
  each(loop, bases, [&](char* const* at, const npy_intp*) { call(loop, at, loop.inner, strides); });
}

namespace {

// Whether the results are right: NumPy's loop decides which of two zeros is the larger one.
bool run_extremes(const Loop& loop, char* const* bases) {
  const Operand &out = loop.operands[0], &in = loop.operands[1];
  bool is_sure = true;
  each(loop, bases, [&](char* const* at, const npy_intp*) {
    const Sheet sheet{loop.rows, loop.inner, at[1], nullptr, at[0], in.row, 0, out.row, true, false};
    is_sure &= loop.found.extremes(loop.found.least, sheet);
  });
  return is_sure;
}

}  // namespace

void run_reduction(const Reduction& reduction, char* const* bases) {
  if (reduction.rows.found.extremes && run_extremes(reduction.rows, bases)) return;
  const Loop& loop = reduction.loop;
  const bool is_inner = reduction.reduced.back();
  npy_intp strides[kMostOperands];
  inner_strides(loop, strides);
  if (reduction.start) {
    char* args[2] = {static_cast<char*>(PyArray_DATA(as_array(reduction.start.get()))),
                     bases[loop.operands[0].buffer] + loop.operands[0].offset};
    const npy_intp steps[2] = {0, PyArray_ITEMSIZE(as_array(reduction.start.get()))};
    reduction.copy.function(args, &reduction.results, steps, reduction.copy.data);
  }
  if (loop.inner == 0) return;
  each(loop, bases, [&](char* const* at, const npy_intp* place) {
    npy_intp n = loop.inner;
    char* from[3] = {at[0], at[1], at[2]};
    bool is_first = !reduction.start;
    for (std::size_t d = 0; d < loop.dims.size() && is_first; ++d) is_first = !reduction.reduced[d] || place[d] == 0;
    if (is_first) {  // there is nothing yet to combine with
      char* args[2] = {at[1], at[0]};
      const npy_intp steps[2] = {strides[1], strides[0]};
      const npy_intp copied = is_inner ? 1 : n;
      reduction.copy.function(args, &copied, steps, reduction.copy.data);
      n -= copied;
      from[1] += strides[1];
    }
    if (n > 0) call(loop, from, n, strides);
  });
}

void run_product(const ProductLoop& product, char* const* bases) {
  const Loop& loop = product.loop;
  npy_intp strides[9], dims[4] = {loop.inner, product.core[0], product.core[1], product.core[2]};
  inner_strides(loop, strides);
  std::copy_n(product.strides, 6, strides + 3);
  if (loop.inner == 0) return;
  each(loop, bases, [&](char* const* at, const npy_intp*) {
    char* args[3] = {at[0], at[1], at[2]};
    loop.found.function(args, dims, strides, loop.found.data);
  });
}

}  // namespace weft
