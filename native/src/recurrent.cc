// All steps of a recurrent layer in one call. Tasks are parts of the batch, so that no step waits for another thread.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kRows = 16;    // sequences of a task
constexpr int64_t kDepth = 256;  // of a product: a strip of the weight stays in cache

// The weight b (k, n) as strips of columns, each contiguous: what multiply_packed reads.
float* pack(int64_t k, int64_t n, const float* b, int64_t ldb, bool transposed) {
  float* to = scratch_of<float>(2, k * n);
  for (int64_t j = 0, w; j < n; j += w) {
    w = strip_width<float>(n - j);
    float* strip = to + j * k;
    if (transposed)
      transpose(w, k, b + j * ldb, ldb, strip, w);
    else
      for (int64_t r = 0; r < k; r++) copy(strip + r * w, b + r * ldb + j, w);
  }
  return to;
}
// c (m, n) = start + a (m, k) b, with b packed; `start` is null for zeros, or has rows `lds` apart
void multiply_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, const float* start,
                     int64_t lds) {
  if (!k && !start)
    for (int64_t i = 0; i < m; i++) clear(c + i * n, n);
  for (int64_t j = 0, w; j < n; j += w) {
    w = strip_width<float>(n - j);
    for (int64_t p = 0; p < k; p += kDepth) {
      const float* from = p ? c : start;
      strip<float>(w, m, least(kDepth, k - p), {a + p, k, 1}, b + j * k + p * w, w, c + j, n, from ? from + j : from,
                   p ? n : lds);
    }
  }
}

// One step of the sequences of a task: `rows` from number `first` on.
struct Step {
  const Recurrent& layer;
  int64_t first, rows, step;

  int64_t row() const { return step * layer.batch + first; }  // in the arrays of all steps
  bool has(int64_t r) const { return step < layer.lengths[first + r]; }
  // The rows up to the last that has this step: none but such ones, if longer sequences come first.
  int64_t live() const {
    int64_t count = rows;
    while (count && !has(count - 1)) count--;
    return count;
  }
  // Calls one of the functions for each sequence, with its row in arrays of states and in those of all steps.
  template <class F, class G>
  void each_row(const F& if_live, const G& if_ended) const {
    for (int64_t r = 0; r < rows; r++)
      if (has(r))
        if_live(first + r, row() + r);
      else
        if_ended(first + r, row() + r);
  }
};

template <class F>
void each_step(const Pool& pool, const Recurrent& x, bool backward, const F& f) {
  parallel(pool, ceil_div(x.batch, kRows), [&](int64_t i) {
    for (int64_t s = 0; s < x.steps; s++)
      f(Step{x, i * kRows, least(kRows, x.batch - i * kRows), x.reverse != backward ? x.steps - 1 - s : s});
  });
}

// --- cells ----------------------------------------------------------------------------------------------------

// `sums` become the gates, and the states the new ones.
template <class Lanes>
INLINE void lstm_cell(float* sums, float* h, float* c, float* y, float* cell, int64_t n, Lanes m) {
  const VecF i = sigmoid(load(sums, m)), f = sigmoid(load(sums + n, m));
  const VecF g = tanh(load(sums + 2 * n, m)), o = sigmoid(load(sums + 3 * n, m));
  const VecF new_c = f * load(c, m) + i * g, new_h = o * tanh(new_c);
  store(sums, i, m), store(sums + n, f, m), store(sums + 2 * n, g, m), store(sums + 3 * n, o, m);
  store(c, new_c, m), store(cell, new_c, m), store(h, new_h, m), store(y, new_h, m);
}

// The gradients of a cell's four sums, and, in place of that of its cell, that of the cell before. That of the state
// before is their product with the weight, to which `dh` is set to be added.
template <class Lanes>
INLINE void lstm_cell_back(const float* gates, const float* cell, const float* before, const float* g_y, float* dh,
                           float* dc, float* dz, int64_t n, Lanes m) {
  const VecF i = load(gates, m), f = load(gates + n, m), g = load(gates + 2 * n, m), o = load(gates + 3 * n, m);
  const VecF t = tanh(load(cell, m)), d = load(dh, m) + load(g_y, m);
  const VecF c = load(dc, m) + d * o * (1.f - t * t);
  store(dz, c * g * i * (1.f - i), m);
  store(dz + n, c * load(before, m) * f * (1.f - f), m);
  store(dz + 2 * n, c * i * (1.f - g * g), m);
  store(dz + 3 * n, d * t * o * (1.f - o), m);
  store(dc, c * f, m), store(dh, VecF{}, m);
}

// `sums` of the state become the gates, and the state the new one; x is the projected input.
template <class Lanes>
INLINE void gru_cell(const float* x, float* sums, float* h, float* y, float* inner, int64_t n, Lanes m) {
  const VecF r = sigmoid(load(x, m) + load(sums, m)), z = sigmoid(load(x + n, m) + load(sums + n, m));
  const VecF sum = load(sums + 2 * n, m), c = tanh(load(x + 2 * n, m) + r * sum);
  const VecF new_h = c + z * (load(h, m) - c);
  store(sums, r, m), store(sums + n, z, m), store(sums + 2 * n, c, m), store(inner, sum, m);
  store(h, new_h, m), store(y, new_h, m);
}

// The gradients of both parts of a cell's sums, and what reaches the state before besides those of its sums.
template <class Lanes>
INLINE void gru_cell_back(const float* gates, const float* inner, const float* before, const float* g_y, float* dh,
                          float* dx, float* dsums, int64_t n, Lanes m) {
  const VecF r = load(gates, m), z = load(gates + n, m), c = load(gates + 2 * n, m);
  const VecF d = load(dh, m) + load(g_y, m), dc = d * (1.f - z) * (1.f - c * c);
  const VecF dr = dc * load(inner, m) * r * (1.f - r), dz = d * (load(before, m) - c) * z * (1.f - z);
  store(dx, dr, m), store(dx + n, dz, m), store(dx + 2 * n, dc, m);
  store(dsums, dr, m), store(dsums + n, dz, m), store(dsums + 2 * n, dc * r, m);
  store(dh, d * z, m);
}

}  // namespace

// --- layers ---------------------------------------------------------------------------------------------------

// The states, and on the way back their gradients, are kept in the arrays of the last ones.

void lstm(const Pool& pool, const Recurrent& x, const float* z, const float* h0, const float* c0, const float* weight,
          float* ys, float* h, float* c, float* cells, float* gates) {
  const int64_t n = x.hidden, wide = 4 * n;
  const float* packed = pack(n, wide, weight, n, true);
  copy(h, h0, x.batch * n), copy(c, c0, x.batch * n);
  each_step(pool, x, false, [&](const Step& at) {
    multiply_packed(at.live(), wide, n, h + at.first * n, packed, gates + at.row() * wide, z + at.row() * wide, wide);
    at.each_row(
        [&](int64_t state, int64_t row) {
          each_vector<float>(n, [&](int64_t u, auto m) {
            lstm_cell(gates + row * wide + u, h + state * n + u, c + state * n + u, ys + row * n + u,
                      cells + row * n + u, n, m);
          });
        },
        [&](int64_t state, int64_t row) {
          clear(gates + row * wide, wide), clear(ys + row * n, n), copy(cells + row * n, c + state * n, n);
        });
  });
}

void lstm_backward(const Pool& pool, const Recurrent& x, const float* g_ys, const float* g_h, const float* g_c,
                   const float* gates, const float* cells, const float* c0, const float* weight, float* dz, float* dh,
                   float* dc) {
  const int64_t n = x.hidden, wide = 4 * n;
  const float* packed = pack(wide, n, weight, n, false);
  copy(dh, g_h, x.batch * n), copy(dc, g_c, x.batch * n);
  each_step(pool, x, true, [&](const Step& at) {
    const int64_t step_before = at.step + (x.reverse ? 1 : -1);
    const bool starts = step_before < 0 || step_before == x.steps;
    const float* before = starts ? c0 : cells + step_before * x.batch * n;
    at.each_row(
        [&](int64_t state, int64_t row) {
          each_vector<float>(n, [&](int64_t u, auto m) {
            lstm_cell_back(gates + row * wide + u, cells + row * n + u, before + state * n + u, g_ys + row * n + u,
                           dh + state * n + u, dc + state * n + u, dz + row * wide + u, n, m);
          });
        },
        [&](int64_t, int64_t row) { clear(dz + row * wide, wide); });
    float* sums = dh + at.first * n;
    multiply_packed(at.live(), n, wide, dz + at.row() * wide, packed, sums, sums, n);
  });
}

void gru(const Pool& pool, const Recurrent& x, const float* z, const float* h0, const float* weight, const float* bias,
         float* ys, float* h, float* gates, float* inner) {
  const int64_t n = x.hidden, wide = 3 * n;
  const float* packed = pack(n, wide, weight, n, true);
  copy(h, h0, x.batch * n);
  each_step(pool, x, false, [&](const Step& at) {
    multiply_packed(at.live(), wide, n, h + at.first * n, packed, gates + at.row() * wide, bias, 0);
    at.each_row(
        [&](int64_t state, int64_t row) {
          each_vector<float>(n, [&](int64_t u, auto m) {
            gru_cell(z + row * wide + u, gates + row * wide + u, h + state * n + u, ys + row * n + u,
                     inner + row * n + u, n, m);
          });
        },
        [&](int64_t, int64_t row) {
          clear(gates + row * wide, wide), clear(ys + row * n, n), clear(inner + row * n, n);
        });
  });
}

void gru_backward(const Pool& pool, const Recurrent& x, const float* g_ys, const float* g_h, const float* gates,
                  const float* inner, const float* before, const float* weight, float* dz, float* dsums, float* dh) {
  const int64_t n = x.hidden, wide = 3 * n;
  const float* packed = pack(wide, n, weight, n, false);
  copy(dh, g_h, x.batch * n);
  each_step(pool, x, true, [&](const Step& at) {
    at.each_row(
        [&](int64_t state, int64_t row) {
          each_vector<float>(n, [&](int64_t u, auto m) {
            gru_cell_back(gates + row * wide + u, inner + row * n + u, before + row * n + u, g_ys + row * n + u,
                          dh + state * n + u, dz + row * wide + u, dsums + row * wide + u, n, m);
          });
        },
        [&](int64_t, int64_t row) { clear(dz + row * wide, wide), clear(dsums + row * wide, wide); });
    float* sums = dh + at.first * n;
    multiply_packed(at.live(), n, wide, dsums + at.row() * wide, packed, sums, sums, n);
  });
}

void rnn(const Pool& pool, const Recurrent& x, bool relu, const float* z, const float* h0, const float* weight,
         float* ys, float* h) {
  const int64_t n = x.hidden;
  const float* packed = pack(n, n, weight, n, true);
  copy(h, h0, x.batch * n);
  each_step(pool, x, false, [&](const Step& at) {
    multiply_packed(at.live(), n, n, h + at.first * n, packed, ys + at.row() * n, z + at.row() * n, n);
    at.each_row(
        [&](int64_t state, int64_t row) {
          each_vector<float>(n, [&](int64_t u, auto m) {
            const VecF sum = load(ys + row * n + u, m), y = relu ? (sum < 0.f ? VecF{} : sum) : tanh(sum);
            store(ys + row * n + u, y, m), store(h + state * n + u, y, m);
          });
        },
        [&](int64_t, int64_t row) { clear(ys + row * n, n); });
  });
}

void rnn_backward(const Pool& pool, const Recurrent& x, bool relu, const float* g_ys, const float* g_h, const float* ys,
                  const float* weight, float* dz, float* dh) {
  const int64_t n = x.hidden;
  const float* packed = pack(n, n, weight, n, false);
  copy(dh, g_h, x.batch * n);
  each_step(pool, x, true, [&](const Step& at) {
    at.each_row(
        [&](int64_t state, int64_t row) {
          each_vector<float>(n, [&](int64_t u, auto m) {
            const VecF y = load(ys + row * n + u, m), d = load(dh + state * n + u, m) + load(g_ys + row * n + u, m);
            store(dz + row * n + u, relu ? (y > 0.f ? d : VecF{}) : d * (1.f - y * y), m);
            store(dh + state * n + u, VecF{}, m);
          });
        },
        [&](int64_t, int64_t row) { clear(dz + row * n, n); });
    float* sums = dh + at.first * n;
    multiply_packed(at.live(), n, n, dz + at.row() * n, packed, sums, sums, n);
  });
}

}  // namespace weft::WEFT_VARIANT
