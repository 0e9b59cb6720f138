// The machine: programs over arrays, made of NumPy's own inner loops.
//
// A fragment is what an application computes: steps over registers, each of which shows a part of a buffer by offset,
// shape and strides; so views are metadata, and no step makes one. A machine is fragments joined. `describe.cc` reads
// fragments, `plan.cc` joins them, `space.cc` and `chain.cc` find how loops go over elements, `machine.cc` runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "loops.h"
#include "python.h"

namespace weft {

using Sizes = std::vector<npy_intp>;

// Elements of a buffer.
struct Register {
  int buffer = 0;  // in a fragment, ~k stands for what shows the fragment's input k
  npy_intp offset = 0;
  Sizes shape, strides;  // strides in bytes
  Ref dtype;

  PyArray_Descr* descr() const { return reinterpret_cast<PyArray_Descr*>(dtype.get()); }
  npy_intp itemsize() const { return PyDataType_ELSIZE(descr()); }
  npy_intp count() const;
  bool contiguous() const;
};

enum class Kind : int {
  loop,
  copy,
  select,
  reduce,
  product,
  call,
  search,
  accumulate,
  draw,
  hash,
  take,
  scatter,
  sort,
  read,
  write,
  chain
};

struct Step {
  Kind kind = Kind::loop;
  // A loop's ufunc, (ufunc, axes, start or None) of a reduction, a call's function, (whether for the largest, length)
  // of a search, (ufunc, length, strides of the line) of an accumulation, (bytes of a row, to the next row) of a take,
  // (ufunc or None, length of a row, bytes to the next row) of a scatter, whether a sort is for positions,
  // (largest start, bytes) for each dim in which what is read or written begins at a computed place.
  Ref payload;
  int flags = 0;               // of a call what its function is like; else for how many elements one of the loop stands
  std::vector<int> outs, ins;  // registers
};

// What a call's function is like.
constexpr int kSeveral = 1;     // it returns a sequence of arrays
constexpr int kOverwrites = 2;  // it writes to its first argument, which may have to be copied

struct Fragment {
  std::vector<npy_intp> sizes;      // for each buffer its bytes
  std::vector<Ref> constants;       // for each buffer its array, or null if steps fill it
  std::vector<Register> registers;  // those of the inputs come first
  int inputs = 0;
  std::vector<int> outputs;
  std::vector<Step> steps;
};

// Where a buffer's memory is. That of an `array` belongs to an array that the machine makes, that of a `called` one to
// what a call returns.
enum class Place : int { input, constant, arena, array, called };

struct Buffer {
  Place place = Place::arena;
  npy_intp bytes = 0;
  npy_intp offset = 0;     // in the arena
  int input = -1;          // the position of an input
  int like = -1;           // the register with the type and shape of the object that has the memory, if it is known
  bool is_object = false;  // whether a call reads it, or it is a result
  Ref constant;
};

constexpr int kScratch = -1;  // the buffer of operands in a chain's scratch

// An operand of a loop: where its elements begin, and how far it is to the next one.
struct Operand {
  int buffer;
  npy_intp offset;
  npy_intp stride;
  npy_intp row = 0;  // how far it is to the next row, in a chain or where many rows are computed at once
};

// A number in memory, by which an operand's first element is moved.
struct Start {
  int buffer;
  npy_intp offset;  // of the number
  npy_intp most;    // it is taken to be from 0 to this
  npy_intp bytes;   // how far a step of 1 is
};

// A loop over an iteration space. Its function goes over the last dim.
struct Loop {
  Found found;
  npy_intp inner = 1;  // the size of the last dim
  npy_intp rows = 1;   // that of the dim before it, where the loop has a function for many rows
  std::vector<Operand> operands;
  Sizes dims;                  // the others
  std::vector<Sizes> strides;  // for each of these, those of the operands
  std::vector<Start> starts;   // they move the operand `moved`
  std::size_t moved = 0;
};

struct Reduction {
  Loop loop;                  // over (result, what is reduced, result)
  std::vector<bool> reduced;  // for each dim of the loop, the last included
  Loop rows;                  // the same by the function for the extremes of many rows, if that serves it
  Ref start;                  // an array of one element to start from; if null, the first ones are copied
  Found copy;
  npy_intp results;
};

struct ProductLoop {
  Loop loop;            // over the matrices: (left, right, result)
  npy_intp core[3];     // rows, terms, columns
  npy_intp strides[6];  // of the operands in these
};

// A step of a chain. It goes over all columns or over one element for each row, or reduces each row to one.
struct ChainStep {
  Loop loop;         // over (what is read, result)
  npy_intp columns;  // 1, or those of the chain
  bool reduces;
  Ref start;   // an array of one element to start from; if null, the first one is copied
  Found copy;  // of the first element
};

// Steps of which each goes over a tile (some rows, or a part of one) before the first one goes on to the next tile.
struct Chain {
  npy_intp rows, columns, tile;
  std::vector<ChainStep> steps;
  npy_intp scratch;  // where the tiles of what only the chain uses are, in the arena
  npy_intp scratch_bytes;
};

struct Call {
  Ref function;
  int flags;
  std::vector<int> outs, ins;  // registers
  bool is_last_use;            // of the first argument
};

// What is run at once: the `at`-th of its kind.
struct Action {
  Kind kind;
  int at;
  bool is_long = false;          // whether other threads, and signals, should not wait for it
  std::vector<int> made, ended;  // buffers: of arrays that are made for it, and that nothing needs afterwards
};

struct Machine {
  std::vector<Register> registers;
  std::vector<Buffer> buffers;
  std::vector<int> inputs, outputs;  // registers
  std::vector<Loop> loops;
  std::vector<Reduction> reductions;
  std::vector<ProductLoop> products;
  std::vector<Chain> chains;
  std::vector<Call> calls;
  std::vector<Action> actions;
  npy_intp arena = 0;  // bytes

  bool run(PyObject* const* given, PyObject** results) const;
};

// A fragment applied to entries. Entries are a machine's inputs, then the outputs of each part.
struct Part {
  const Fragment* fragment;
  std::vector<int> inputs;
};

// describe.cc: what Python describes
Register register_from(PyObject* description);
bool add_fragment_type(PyObject* module);
const Fragment* fragment_of(PyObject* object);
std::vector<int> numbers_from(PyObject* sequence);

// plan.cc
Machine joined(std::vector<Register> inputs, const std::vector<Part>& parts, const std::vector<int>& outputs);

// space.cc: steps as loops, and the running of these
Loop loop_of_step(const std::vector<Register>& registers, const Step& step);
// Keeps the function for many rows only if it serves such operands.
void check_rows(Loop& loop, npy_intp itemsize);
void run_rows(const Loop& loop, char* const* at, npy_intp rows, npy_intp columns);
Found found_for(const std::vector<Register>& registers, const Step& step);
Reduction reduction_of(const std::vector<Register>& registers, const Step& step);
ProductLoop product_of(const std::vector<Register>& registers, const Step& step);
void run_loop(const Loop& loop, char* const* bases);
void run_reduction(const Reduction& reduction, char* const* bases);
void run_product(const ProductLoop& product, char* const* bases);

// chain.cc
// The number of steps from `first` on that make a chain; 0 if that one cannot be in any.
int chain_length(const std::vector<Register>& registers, const std::vector<Step>& steps, int first);
// The chain of these steps; `inside` are the buffers that only they use.
Chain chain_of(const std::vector<Register>& registers, const Step* steps, int count, const std::set<int>& inside);
void run_chain(const Chain& chain, char* const* bases, char* arena);

// The results for inputs that are arrays of the right types, or numbers; false with an exception of Python's set.
bool run(PyObject* machine, PyObject* const* inputs, PyObject** results);
bool init_machine(PyObject* module);

}  // namespace weft
