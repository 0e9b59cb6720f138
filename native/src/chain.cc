// Chains: elementwise steps that run tile by tile, so that what one gives the next stays in the cache.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "arrays.h"
#include "machine.h"
#include "python.h"
#include "threads.h"

namespace weft {
namespace {

constexpr npy_intp kLeastTile = 4096, kMostTile = 8192;  // bytes of each operand, so that those of a step are in cache
constexpr npy_intp kMostRow = 65'536;                    // bytes of a row that is reduced
constexpr npy_intp kLeastChained = 4096;                 // elements from which on tiles save more than they cost
constexpr npy_intp kLine = 64;                           // bytes
constexpr double kOperations = 16;                       // of a product that take as long as one of an element
constexpr int kSlot = 3;                                 // of the memory of each thread: no step of a chain uses it

// A step's iteration space.
struct Grid {
  Sizes shape;                   // without dims of size 1
  std::vector<Sizes> steps;      // the strides of each operand
  std::set<std::size_t> breaks;  // dims before which an operand does not go on evenly
};

bool is_elementwise(const Step& step) {
  return (step.kind == Kind::loop && step.outs.size() == 1) || step.kind == Kind::copy || step.kind == Kind::select;
}

// Those of what is read, then those of the result.
std::vector<int> operands_of(const Step& step) {
  std::vector<int> operands = step.ins;
  operands.insert(operands.end(), step.outs.begin(), step.outs.end());
  return operands;
}

// For each dim of what a step goes over whether it is reduced.
std::vector<bool> reduced_dims(const std::vector<Register>& registers, const Step& step) {
  std::vector<bool> reduced(registers[step.kind == Kind::reduce ? step.ins[0] : step.outs[0]].shape.size(), false);
  if (step.kind != Kind::reduce) return reduced;
  for (const int axis : numbers_from(PyTuple_GET_ITEM(step.payload.get(), 1))) reduced[axis] = true;
  return reduced;
}

Grid grid_of(const std::vector<Register>& registers, const Step& step) {
  Grid grid;
  const std::vector<bool> reduced = reduced_dims(registers, step);
  const Sizes& whole = registers[step.kind == Kind::reduce ? step.ins[0] : step.outs[0]].shape;
  std::vector<std::size_t> kept;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (whole[d] == 1) continue;
    kept.push_back(d);
    grid.shape.push_back(whole[d]);
  }
  for (const int number : operands_of(step)) {
    const Register& shown = registers[number];
    Sizes strides;
    if (step.kind == Kind::reduce && number == step.outs[0]) {
      auto next = shown.strides.begin();
      for (std::size_t d = 0; d < whole.size(); ++d) {
        const npy_intp stride = reduced[d] ? 0 : *next++;
        if (whole[d] != 1) strides.push_back(stride);
      }
    } else {
      const std::size_t lead = whole.size() - shown.shape.size();
      for (const std::size_t d : kept) {
        strides.push_back(d < lead || shown.shape[d - lead] == 1 ? 0 : shown.strides[d - lead]);
      }
    }
    for (std::size_t d = 1; d < strides.size(); ++d) {
      if (strides[d - 1] != strides[d] * grid.shape[d]) grid.breaks.insert(d);
    }
    grid.steps.push_back(std::move(strides));
  }
  return grid;
}

// The strides of a result that lies in order, over the first `dims` dims of a shape; over others they are 0.
Sizes dense_strides(const Sizes& shape, std::size_t dims, npy_intp stride) {
  Sizes strides(shape.size(), 0);
  for (std::size_t d = dims; d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

// What the steps of a chain have in common. A chain goes over rows of columns: its dims before `split`, and those from
// there on. Some of its steps may reduce each row to an element, and others compute with one element for each row.
class Common {
 public:
  explicit Common(const std::vector<Register>& registers) : registers_(registers) {}

  // Take a further step into the chain; false if it goes over other elements.
  bool add(const Step& step) {
    const bool reduces = step.kind == Kind::reduce;
    if (!reduces && !is_elementwise(step)) return false;
    const Register& out = registers_[step.outs[0]];
    if (!out.contiguous() || written_.contains(out.buffer)) return false;
    Grid grid = grid_of(registers_, step);
    const Sizes shape = grids.empty() ? grid.shape : shape_;
    const bool is_narrow = reduces_rows_ && grid.shape.size() == split() &&
                           std::equal(grid.shape.begin(), grid.shape.end(), shape.begin());
    if (!is_narrow && grid.shape != shape) return false;
    if (is_narrow && (reduces || !grid.breaks.empty())) return false;
    std::set<std::size_t> breaks = grid.breaks;
    breaks.insert(breaks_.begin(), breaks_.end());
    if (breaks.size() > 1 || (reduces && !reduces_columns(step, grid, shape, breaks))) return false;
    for (std::size_t i = 0; i < step.ins.size(); ++i) {
      if (!is_at_hand(registers_[step.ins[i]], grid.steps[i], shape)) return false;
    }
    shape_ = shape;
    breaks_ = std::move(breaks);
    reduces_rows_ = reduces_rows_ || reduces;
    written_[out.buffer] = {&out, is_narrow || reduces};
    narrow.push_back(is_narrow);
    grids.push_back(std::move(grid));
    return true;
  }

  bool is_even() const { return breaks_.empty(); }
  std::size_t split() const { return breaks_.empty() ? 0 : *breaks_.begin(); }
  bool reduces_rows() const { return reduces_rows_; }
  npy_intp rows() const { return product(shape_.begin(), at_split()); }
  npy_intp columns() const { return product(at_split(), shape_.end()); }
  // Whether what a step of the chain has written has one element for each row.
  bool is_narrow(int buffer) const { return written_.at(buffer).second; }

  std::vector<Grid> grids;   // of each step
  std::vector<bool> narrow;  // whether a step goes over one element for each row

 private:
  Sizes::const_iterator at_split() const { return shape_.begin() + static_cast<std::ptrdiff_t>(split()); }
  static npy_intp product(Sizes::const_iterator from, Sizes::const_iterator to) {
    return std::accumulate(from, to, npy_intp{1}, std::multiplies<>());
  }

  // Whether a step reduces just the columns, which lie in order and are few enough for whole rows in cache.
  bool reduces_columns(const Step& step, const Grid& grid, const Sizes& shape, const std::set<std::size_t>& breaks) {
    const Register& in = registers_[step.ins[0]];
    if (breaks.empty() || !in.contiguous()) return false;
    const std::size_t at = *breaks.begin();
    const Sizes kept = dense_strides(shape, at, registers_[step.outs[0]].itemsize());
    const npy_intp row = product(shape.begin() + static_cast<std::ptrdiff_t>(at), shape.end()) * in.itemsize();
    return grid.steps.back() == kept && row <= kMostRow && found_for(registers_, step).function;
  }

  // What a step of the chain has written is there only where the tile is.
  bool is_at_hand(const Register& in, const Sizes& strides, const Sizes& shape) const {
    const auto found = written_.find(in.buffer);
    if (found == written_.end()) return true;
    const auto& [out, is_narrow] = found->second;
    if (!is_narrow && strides.size() != shape.size()) return false;  // a column of it
    Sizes expected = dense_strides(shape, is_narrow ? split() : shape.size(), out->itemsize());
    expected.resize(strides.size());
    return in.offset == out->offset && in.itemsize() == out->itemsize() && strides == expected;
  }

  const std::vector<Register>& registers_;
  Sizes shape_;
  std::set<std::size_t> breaks_;
  bool reduces_rows_ = false;
  std::map<int, std::pair<const Register*, bool>> written_;  // whether it has one element for each row
};

}  // namespace

int chain_length(const std::vector<Register>& registers, const std::vector<Step>& steps, int first) {
  const Step& step = steps[first];
  const int largest = step.kind == Kind::reduce ? step.ins[0] : step.outs[0];
  if (registers[largest].count() < kLeastChained) return 0;
  Common common(registers);
  int at = first;
  while (at < static_cast<int>(steps.size()) && common.add(steps[at])) ++at;
  return at - first;
}

Chain chain_of(const std::vector<Register>& registers, const Step* steps, int count, const std::set<int>& inside) {
  Common common(registers);
  std::map<int, int> last;  // the last step of the chain that needs a buffer
  npy_intp widest = 1;
  for (int at = 0; at < count; ++at) {
    common.add(steps[at]);
    for (const int number : operands_of(steps[at])) last[registers[number].buffer] = at;
    widest = std::max(widest, registers[steps[at].outs[0]].itemsize());
  }
  Chain chain;
  chain.rows = common.rows();
  chain.columns = common.columns();
  chain.scratch = 0;
  const npy_intp tile = std::clamp(chain.rows * chain.columns * widest / 4, kLeastTile, kMostTile) / widest;
  const bool by_parts = chain.columns >= tile && !common.reduces_rows();
  chain.tile = by_parts ? tile : std::max<npy_intp>(1, tile / chain.columns) * chain.columns;
  const npy_intp slot_bytes = (chain.tile * widest + kLine - 1) / kLine * kLine;
  std::map<int, npy_intp> slots;
  std::vector<npy_intp> free;
  npy_intp used = 0;
  for (int at = 0; at < count; ++at) {
    const Step& step = steps[at];
    ChainStep made{.columns = common.narrow[at] ? 1 : chain.columns, .reduces = step.kind == Kind::reduce};
    const std::vector<int> operands = operands_of(step);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Register& shown = registers[operands[i]];
      const Sizes& strides = common.grids[at].steps[i];
      Operand operand{.buffer = shown.buffer, .offset = shown.offset};
      if (inside.contains(shown.buffer)) {
        if (!slots.contains(shown.buffer)) {
          if (free.empty()) {
            free.push_back(used);
            used += slot_bytes;
          }
          slots[shown.buffer] = free.back();
          free.pop_back();
        }
        const bool is_narrow = common.is_narrow(shown.buffer);
        operand.buffer = kScratch;
        operand.offset = slots[shown.buffer];
        operand.stride = is_narrow && !common.narrow[at] ? 0 : shown.itemsize();
        operand.row = is_narrow ? shown.itemsize() : shown.itemsize() * chain.columns;
      } else if (common.narrow[at]) {
        operand.stride = operand.row = strides.back();
      } else {
        operand.stride = strides.back();
        operand.row = common.is_even() ? operand.stride * chain.columns : strides[common.split() - 1];
      }
      made.loop.operands.push_back(operand);
    }
    for (const auto& [buffer, step_at] : last) {
      if (step_at == at && slots.contains(buffer)) free.push_back(slots[buffer]);
    }
    made.loop.found = found_for(registers, step);
    made.loop.inner = made.columns;
    if (made.reduces) {
      PyObject* start = PyTuple_GET_ITEM(step.payload.get(), 2);
      if (start != Py_None) made.start = Ref::to(start);
      made.copy = copy_of(registers[step.ins[0]].descr(), registers[step.outs[0]].descr());
    } else {
      check_rows(made.loop, registers[step.outs[0]].itemsize());
    }
    chain.steps.push_back(std::move(made));
  }
  chain.scratch_bytes = used;
  return chain;
}

namespace {

// Reduces each of `rows` rows, which lies in order.
void reduce_rows(const ChainStep& step, char* const* at, npy_intp rows, npy_intp columns) {
  const Operand &in = step.loop.operands[0], &out = step.loop.operands[1];
  const Found& found = step.loop.found;
  if (found.extremes && !step.start) {
    const Sheet sheet{rows, columns, at[0], nullptr, at[1], in.row, 0, out.row, true, false};
    if (found.extremes(found.least, sheet)) return;
  }
  const npy_intp strides[3] = {0, in.stride, 0}, one = 1;
  char* const start = step.start ? PyArray_BYTES(as_array(step.start.get())) : nullptr;
  for (npy_intp row = 0; row < rows; ++row) {
    char *from = at[0] + row * in.row, *to = at[1] + row * out.row;
    char* first[2] = {start ? start : from, to};
    step.copy.function(first, &one, strides, step.copy.data);
    npy_intp n = columns;
    if (!start) {
      from += in.stride;
      --n;
    }
    char* args[3] = {to, from, to};
    if (n > 0) found.function(args, &n, strides, found.data);
  }
}

// Runs a step for `rows` rows of `columns` elements, from this place on.
void run_tile(const ChainStep& step, char* const* bases, char* scratch, npy_intp row, npy_intp column, npy_intp rows,
              npy_intp columns) {
  const Loop& loop = step.loop;
  char* at[8];
  npy_intp strides[8];
  const std::size_t count = loop.operands.size();
  if (step.columns == 1) columns = 1;
  bool joins = true;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& operand = loop.operands[i];
    at[i] = operand.buffer == kScratch
                ? scratch + operand.offset
                : bases[operand.buffer] + operand.offset + row * operand.row + column * operand.stride;
    strides[i] = operand.stride;
    joins = joins && operand.row == operand.stride * columns;
  }
  if (step.reduces) return reduce_rows(step, at, rows, columns);
  if (loop.found.rows) {
    run_rows(loop, at, joins ? 1 : rows, joins ? rows * columns : columns);
    return;
  }
  npy_intp n = columns;
  if (joins) {
    n *= rows;
    rows = 1;
  }
  while (true) {
    char* args[8];
    std::copy_n(at, count, args);
    loop.found.function(args, &n, strides, loop.found.data);
    if (--rows == 0) return;
    for (std::size_t i = 0; i < count; ++i) at[i] += loop.operands[i].row;
  }
}

}  // namespace

void run_chain(const Chain& chain, char* const* bases, char* arena) {
  const npy_intp columns = std::min(chain.columns, chain.tile),
                 rows = std::max<npy_intp>(1, chain.tile / chain.columns);
  const npy_intp across = (chain.columns + columns - 1) / columns, tiles = (chain.rows + rows - 1) / rows * across;
  const auto run_tiles = [&](npy_intp first, npy_intp end, char* scratch) {
    for (npy_intp at = first; at < end; ++at) {
      const npy_intp row = at / across * rows, column = at % across * columns;
      const npy_intp height = std::min(rows, chain.rows - row), width = std::min(columns, chain.columns - column);
      for (const ChainStep& step : chain.steps) run_tile(step, bases, scratch, row, column, height, width);
    }
  };
  const auto steps = static_cast<double>(chain.rows * chain.columns) * static_cast<double>(chain.steps.size());
  const Pool pool = threads_for(kOperations * steps);
  if (pool.threads == 1) return run_tiles(0, tiles, arena + chain.scratch);
  // A thread may come late or be stopped: so there are several parts for each.
  const npy_intp parts = std::min<npy_intp>(tiles, 4 * pool.threads);
  const auto part = [&](npy_intp at) {
    char* own = static_cast<char*>(scratch(kSlot, static_cast<std::size_t>(chain.scratch_bytes)));
    run_tiles(at * tiles / parts, (at + 1) * tiles / parts, own);
  };
  pool.run(
      pool.self, parts, [](const void* arg, int64_t at) { (*static_cast<const decltype(part)*>(arg))(at); }, &part);
}

}  // namespace weft
