// Chains: elementwise steps that run tile by tile, so that what one gives the next stays in the cache.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "machine.h"
#include "python.h"
#include "threads.h"

namespace weft {
namespace {

constexpr npy_intp kLeastTile = 4096, kMostTile = 8192;  // bytes of each operand, so that those of a step are in cache
constexpr npy_intp kLeastChained = 4096;                 // elements from which on tiles save more than they cost
constexpr npy_intp kLine = 64;                           // bytes
constexpr double kOperations = 16;                       // of a product that take as long as one of an element
constexpr int kSlot = 3;                                 // of the memory of each thread: no step of a chain uses it

// A step's iteration space as rows of columns.
struct Grid {
  Sizes shape;                   // without dims of size 1
  std::vector<Sizes> steps;      // the strides of each operand
  std::set<std::size_t> breaks;  // dims before which an operand does not go on evenly
};

bool is_elementwise(const Step& step) {
  return (step.kind == Kind::loop && step.outs.size() == 1) || step.kind == Kind::copy || step.kind == Kind::select;
}

Grid grid_of(const std::vector<Register>& registers, const Step& step) {
  Grid grid;
  const Sizes& whole = registers[step.outs[0]].shape;
  std::vector<std::size_t> kept;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (whole[d] == 1) continue;
    kept.push_back(d);
    grid.shape.push_back(whole[d]);
  }
  for (const auto* numbers : {&step.ins, &step.outs}) {
    for (const int number : *numbers) {
      const Register& shown = registers[number];
      const std::size_t lead = whole.size() - shown.shape.size();
      Sizes strides;
      for (const std::size_t d : kept) {
        strides.push_back(d < lead || shown.shape[d - lead] == 1 ? 0 : shown.strides[d - lead]);
      }
      for (std::size_t d = 1; d < strides.size(); ++d) {
        if (strides[d - 1] != strides[d] * grid.shape[d]) grid.breaks.insert(d);
      }
      grid.steps.push_back(std::move(strides));
    }
  }
  return grid;
}

bool same_elements(const Register& a, const Register& b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.count() == b.count() && a.contiguous() && b.contiguous() &&
         a.itemsize() == b.itemsize();
}

}  // namespace

int chain_length(const std::vector<Register>& registers, const std::vector<Step>& steps, int first) {
  if (!is_elementwise(steps[first]) || registers[steps[first].outs[0]].count() < kLeastChained) return 0;
  Grid grid = grid_of(registers, steps[first]);
  if (grid.breaks.size() > 1) return 0;
  std::map<int, const Register*> written;
  int at = first;
  for (; at < static_cast<int>(steps.size()); ++at) {
    const Step& step = steps[at];
    if (!is_elementwise(step)) break;
    const Register& out = registers[step.outs[0]];
    if (!out.contiguous() || written.contains(out.buffer)) break;
    Grid next = grid_of(registers, step);
    if (next.shape != grid.shape) break;
    next.breaks.insert(grid.breaks.begin(), grid.breaks.end());
    if (next.breaks.size() > 1) break;
    // What a step of the chain has written is there only where the tile is.
    const bool reads_elsewhere = std::any_of(step.ins.begin(), step.ins.end(), [&](int number) {
      const auto found = written.find(registers[number].buffer);
      return found != written.end() && !same_elements(*found->second, registers[number]);
    });
    if (reads_elsewhere) break;
    grid.breaks = std::move(next.breaks);
    written[out.buffer] = &out;
  }
  return at - first;
}

Chain chain_of(const std::vector<Register>& registers, const Step* steps, int count, const std::set<int>& inside) {
  std::vector<Grid> grids;
  std::set<std::size_t> breaks;
  std::map<int, int> last;  // the last step of the chain that needs a buffer
  for (int at = 0; at < count; ++at) {
    grids.push_back(grid_of(registers, steps[at]));
    breaks.insert(grids.back().breaks.begin(), grids.back().breaks.end());
    for (const int number : steps[at].ins) last[registers[number].buffer] = at;
    last[registers[steps[at].outs[0]].buffer] = at;
  }
  const Sizes& shape = grids[0].shape;
  const auto split = shape.begin() + (breaks.empty() ? 0 : static_cast<std::ptrdiff_t>(*breaks.begin()));
  Chain chain;
  chain.rows = std::accumulate(shape.begin(), split, npy_intp{1}, std::multiplies<>());
  chain.columns = std::accumulate(split, shape.end(), npy_intp{1}, std::multiplies<>());
  chain.scratch = 0;
  npy_intp widest = 1;
  for (int at = 0; at < count; ++at) widest = std::max(widest, registers[steps[at].outs[0]].itemsize());
  const npy_intp tile = std::clamp(chain.rows * chain.columns * widest / 4, kLeastTile, kMostTile) / widest;
  chain.tile = chain.columns >= tile ? tile : tile / chain.columns * chain.columns;
  const npy_intp slot_bytes = (chain.tile * widest + kLine - 1) / kLine * kLine;
  std::map<int, npy_intp> slots;
  std::vector<npy_intp> free;
  npy_intp used = 0;
  for (int at = 0; at < count; ++at) {
    const Step& step = steps[at];
    Loop loop;
    loop.found = found_for(registers, step);
    std::vector<int> operands = step.ins;
    operands.push_back(step.outs[0]);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Register& shown = registers[operands[i]];
      const Sizes& strides = grids[at].steps[i];
      const npy_intp stride = breaks.empty() || split != shape.end() ? strides.back() : 0;
      const npy_intp row = breaks.empty() ? stride * chain.columns : strides[*breaks.begin() - 1];
      if (!inside.contains(shown.buffer)) {
        loop.operands.push_back({shown.buffer, shown.offset, stride, row});
        continue;
      }
      if (!slots.contains(shown.buffer)) {
        if (free.empty()) {
          free.push_back(used);
          used += slot_bytes;
        }
        slots[shown.buffer] = free.back();
        free.pop_back();
      }
      loop.operands.push_back({kScratch, slots[shown.buffer], shown.itemsize(), shown.itemsize() * chain.columns});
    }
    for (const auto& [buffer, step_at] : last) {
      if (step_at == at && slots.contains(buffer)) free.push_back(slots[buffer]);
    }
    loop.inner = chain.columns;
    check_rows(loop, registers[step.outs[0]].itemsize());
    chain.loops.push_back(std::move(loop));
  }
  chain.scratch_bytes = used;
  return chain;
}

namespace {

// Runs a loop for `rows` rows of `columns` elements, from this place on.
void run_tile(const Loop& loop, char* const* bases, char* scratch, npy_intp row, npy_intp column, npy_intp rows,
              npy_intp columns) {
  char* at[8];
  npy_intp strides[8];
  const std::size_t count = loop.operands.size();
  bool joins = true;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& operand = loop.operands[i];
    at[i] = operand.buffer == kScratch
                ? scratch + operand.offset
                : bases[operand.buffer] + operand.offset + row * operand.row + column * operand.stride;
    strides[i] = operand.stride;
    joins = joins && operand.row == operand.stride * columns;
  }
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
      for (const Loop& loop : chain.loops) run_tile(loop, bases, scratch, row, column, height, width);
    }
  };
  const auto steps = static_cast<double>(chain.rows * chain.columns) * static_cast<double>(chain.loops.size());
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
