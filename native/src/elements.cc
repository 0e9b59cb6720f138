// Arithmetic of rows of elements, choices, and the extremes of rows. A result is the only number that is right, so it
// does not depend on who computes it. Where it does, with zeros of both signs, the kernel says so.
#include "elements.h"
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

// f(x, y) for a row. An operand that does not move is one element.
template <class T, bool X_MOVES, bool Y_MOVES, class F>
INLINE void row(int64_t columns, const T* x, const T* y, T* out, const F& f) {
  constexpr int64_t kStep = kLanes<T>;
  const Vec<T> one = splat(*x), other = splat(*y);
  int64_t i = 0;
  for (; i + kStep <= columns; i += kStep) {
    const Vec<T> a = X_MOVES ? load(x + i) : one, b = Y_MOVES ? load(y + i) : other;
    store(out + i, f(a, b));
  }
  if (i < columns) {
    const Mask rest(columns - i);
    const Vec<T> a = X_MOVES ? load_part(x + i, rest) : one, b = Y_MOVES ? load_part(y + i, rest) : other;
    store_part(out + i, f(a, b), rest);
  }
}

template <class T, bool X_MOVES, bool Y_MOVES, class F>
void all_rows(const Sheet& s, const F& f) {
  for (int64_t at = 0; at < s.rows; at++)
    row<T, X_MOVES, Y_MOVES>(s.columns, reinterpret_cast<const T*>(s.x + at * s.x_row),
                             reinterpret_cast<const T*>(s.y + at * s.y_row),
                             reinterpret_cast<T*>(s.out + at * s.out_row), f);
}

template <class T, class F>
INLINE void sheet(const Sheet& s, const F& f) {
  if (s.x_moves && s.y_moves)
    all_rows<T, true, true>(s, f);
  else if (s.x_moves)
    all_rows<T, true, false>(s, f);
  else if (s.y_moves)
    all_rows<T, false, true>(s, f);
  else
    all_rows<T, false, false>(s, f);
}

template <class T>
using Bits = Vec<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;

// The larger or the smaller one, NaN if one of them is; `doubt` gets bits where they are zeros of both signs.
template <class T, bool LEAST>
INLINE Vec<T> better(Vec<T> a, Vec<T> b, Bits<T>& doubt) {
  doubt |= (Bits<T>)(a == b) & ((Bits<T>)a ^ (Bits<T>)b);
  const auto first = (LEAST ? a < b : a > b) | (a != a);
  return first ? a : b;
}

template <class T, bool LEAST>
INLINE bool all_better(const Sheet& s) {
  Bits<T> doubt{};
  sheet<T>(s, [&](Vec<T> a, Vec<T> b) { return better<T, LEAST>(a, b, doubt); });
  bool is_sure = true;
  for (int64_t lane = 0; lane < kLanes<T>; lane++) is_sure &= doubt[lane] == 0;
  return is_sure;
}

template <class T>
bool arithmetic(Arithmetic which, const Sheet& s) {
  switch (which) {
    case Arithmetic::add:
      return sheet<T>(s, [](Vec<T> a, Vec<T> b) { return a + b; }), true;
    case Arithmetic::subtract:
      return sheet<T>(s, [](Vec<T> a, Vec<T> b) { return a - b; }), true;
    case Arithmetic::multiply:
      return sheet<T>(s, [](Vec<T> a, Vec<T> b) { return a * b; }), true;
    case Arithmetic::divide:
      return sheet<T>(s, [](Vec<T> a, Vec<T> b) { return a / b; }), true;
    case Arithmetic::maximum:
      return all_better<T, false>(s);
    case Arithmetic::minimum:
      return all_better<T, true>(s);
  }
  return false;
}

template <class T, bool LEAST>
INLINE T extreme(int64_t columns, const T* x) {
  constexpr int64_t kStep = kLanes<T>;
  T best = *x;
  bool odd = best != best;
  int64_t i = 0;
  if (columns >= kStep) {
    Vec<T> lanes = load(x);
    auto odds = lanes != lanes;
    for (i = kStep; i + kStep <= columns; i += kStep) {
      const Vec<T> next = load(x + i);
      lanes = LEAST ? (next < lanes ? next : lanes) : (next > lanes ? next : lanes);
      odds |= next != next;
    }
    for (int64_t lane = 0; lane < kStep; lane++) {
      const T here = lanes[lane];
      if (LEAST ? here < best : here > best) best = here;
      odd |= odds[lane] != 0;
    }
  }
  for (; i < columns; i++) {
    if (LEAST ? x[i] < best : x[i] > best) best = x[i];
    odd |= x[i] != x[i];
  }
  return odd ? static_cast<T>(__builtin_nan("")) : best;
}

template <class T, bool LEAST>
bool extremes(const Sheet& s) {
  bool is_sure = true;
  for (int64_t at = 0; at < s.rows; at++) {
    const T best = extreme<T, LEAST>(s.columns, reinterpret_cast<const T*>(s.x + at * s.x_row));
    *reinterpret_cast<T*>(s.out + at * s.out_row) = best;
    is_sure &= best != 0;
  }
  return is_sure;
}

// As many bytes as a vector has elements, as such.
template <class T>
INLINE Vec<T> widened(const uint8_t* bytes) {
  __m128i few{};
  __builtin_memcpy(&few, bytes, kLanes<T>);
#ifdef __AVX512F__
  return (Vec<T>)(sizeof(T) == 4 ? _mm512_maskz_cvtepu8_epi32(0xffff, few) : _mm512_maskz_cvtepu8_epi64(0xff, few));
#else
  return (Vec<T>)(sizeof(T) == 4 ? _mm256_cvtepu8_epi32(few) : _mm256_cvtepu8_epi64(few));
#endif
}

// Elements of y where `which` is 0, of x elsewhere.
template <class T, bool X_MOVES, bool Y_MOVES>
INLINE void chosen(const uint8_t* which, const Sheet& s) {
  constexpr int64_t kStep = kLanes<T>;
  const T *x = reinterpret_cast<const T*>(s.x), *y = reinterpret_cast<const T*>(s.y);
  T* out = reinterpret_cast<T*>(s.out);
  const Vec<T> one = splat(*x), other = splat(*y);
  int64_t i = 0;
  for (; i + kStep <= s.columns; i += kStep) {
    const Vec<T> a = X_MOVES ? load(x + i) : one, b = Y_MOVES ? load(y + i) : other;
    store(out + i, widened<T>(which + i) != 0 ? a : b);
  }
  for (; i < s.columns; i++) out[i] = which[i] ? x[X_MOVES ? i : 0] : y[Y_MOVES ? i : 0];
}

template <class T>
INLINE void choose(const uint8_t* which, const Sheet& s) {
  if (s.x_moves && s.y_moves)
    chosen<T, true, true>(which, s);
  else if (s.x_moves)
    chosen<T, true, false>(which, s);
  else if (s.y_moves)
    chosen<T, false, true>(which, s);
  else
    chosen<T, false, false>(which, s);
}

}  // namespace

void choose_32(const uint8_t* which, const Sheet& s) { choose<uint32_t>(which, s); }
void choose_64(const uint8_t* which, const Sheet& s) { choose<uint64_t>(which, s); }
bool arithmetic_f32(Arithmetic which, const Sheet& s) { return arithmetic<float>(which, s); }
bool arithmetic_f64(Arithmetic which, const Sheet& s) { return arithmetic<double>(which, s); }
bool row_extremes_f32(bool least, const Sheet& s) {
  return least ? extremes<float, true>(s) : extremes<float, false>(s);
}
bool row_extremes_f64(bool least, const Sheet& s) {
  return least ? extremes<double, true>(s) : extremes<double, false>(s);
}

}  // namespace weft::WEFT_VARIANT
