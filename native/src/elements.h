// Kernels for rows of elements, of which each result is the only number that is right.
#pragma once
#include <cstdint>

namespace weft {

// Rows of elements: an operation of x and y, or of x alone. An operand that does not move is one element in each row.
// Rows are so many bytes apart.
struct Sheet {
  int64_t rows, columns;
  const char *x, *y;
  char* out;
  int64_t x_row, y_row, out_row;
  bool x_moves, y_moves;
};
enum class Arithmetic : int { add, subtract, multiply, divide, maximum, minimum };

// What returns a bool may be in doubt: which of two zeros is the larger one depends on who computes it.
// `choose` is for one row.
#define WEFT_ELEMENTS                                 \
  void choose_32(const uint8_t* which, const Sheet&); \
  void choose_64(const uint8_t* which, const Sheet&); \
  bool arithmetic_f32(Arithmetic, const Sheet&);      \
  bool arithmetic_f64(Arithmetic, const Sheet&);      \
  bool row_extremes_f32(bool least, const Sheet&);    \
  bool row_extremes_f64(bool least, const Sheet&);

namespace avx2 {
WEFT_ELEMENTS
}
namespace avx512 {
WEFT_ELEMENTS
}
#undef WEFT_ELEMENTS

}  // namespace weft
