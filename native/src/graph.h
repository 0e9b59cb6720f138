// Small graphs, numbered: what a flush of them finds its program by (`flush.cc`).
#pragma once

#include <cstdint>
#include <vector>

#include "numbers.h"
#include "python.h"

namespace weft {

using Words = std::vector<int64_t>;

struct Hash {
  size_t operator()(const Words& words) const {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const int64_t word : words) {
      hash = (hash ^ static_cast<uint64_t>(word)) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

struct GraphStep {
  PyObject* output;
  int first, count;  // of the numbers of its inputs, in `Graph::args`
  int application;   // the step that computes it: this one, or that of an earlier output of the same application
};

// Living values in order of first use, with their inputs, and what of them a flush has to compute.
class Graph {
 public:
  // False if the graph needs the planning in Python; with an error of Python's only if one was raised.
  bool number(const std::vector<Ref>& values);
  bool choose();
  const Words& key();
  void clear();

  // Whether all checks have passed, now that their codes are known.
  bool confirm(const std::vector<PyObject*>& results) const;

  std::vector<PyObject*> entries, nodes, leaves, checks, inputs, results;
  std::vector<Ref> contents;  // of the leaves
  std::vector<int> node_numbers, args, uses, wanted;
  std::vector<GraphStep> steps;

 private:
  bool enter(PyObject* leaf);
  bool keep_for_derivatives(std::vector<char>& kept) const;
  int number_in(PyObject* values, Py_ssize_t at) const { return numbers_.of(PyTuple_GET_ITEM(values, at)); }

  Numbers numbers_, shared_;
  std::vector<PyObject*> with_extras_;
  std::vector<char> kept_;
  Words key_;
  // Leaves. Their values may be computed, and so let go of them, by another thread while this one runs Python.
  std::vector<Ref> held_;
  bool taped_ = false;
};

// Whether a backward pass may still execute the application of a value.
bool is_taped(PyObject* value);

}  // namespace weft
