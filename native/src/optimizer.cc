// Steps of optimizers. One call updates all parameters, and reads and writes each array once. Tasks are parts of the
// parameters put end to end, cut by the sizes alone.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kTask = 1 << 14;  // elements of a task

// f(array, start, count) for the parts of all arrays.
template <class F>
void each_part(const Pool& pool, const Updates& u, const F& f) {
  int64_t total = 0;
  for (int64_t i = 0; i < u.count; i++) total += u.arrays[i].size;
  parallel(pool, ceil_div(total, kTask), [&](int64_t task) {
    const int64_t from = task * kTask, to = least(total, from + kTask);
    int64_t at = 0;  // where the i-th array starts
    for (int64_t i = 0; at < to; at += u.arrays[i++].size) {
      const int64_t start = most<int64_t>(0, from - at), end = least(u.arrays[i].size, to - at);
      if (start < end) f(u.arrays[i], start, end - start);
    }
  });
}

// The larger of two; NaN if one of them is.
INLINE VecF maximum(VecF a, VecF b) {
  const VecF larger = b <= a ? a : b;
  return a != a ? a : larger;
}

}  // namespace

void sgd_step(const Pool& pool, const Updates& u, bool nesterov) {
  const float sign = u.maximize ? -1.f : 1.f;
  each_part(pool, u, [&](const Updated& array, int64_t start, int64_t count) {
    const Updated a = array;
    const float rate = a.factors[0], momentum = a.factors[1], share = a.factors[2], decay = a.factors[3];
    each_vector<float>(count, [&](int64_t i, auto lanes) {
      const int64_t at = start + i;
      const VecF p = load(a.old[0] + at, lanes);
      VecF g = sign * load(a.gradient + at, lanes) + decay * p;
      if (a.old[1]) {
        const VecF buffer = momentum * load(a.old[1] + at, lanes) + share * g;
        store(a.now[1] + at, buffer, lanes);
        g = nesterov ? g + momentum * buffer : buffer;
      }
      store(a.now[0] + at, p - rate * g, lanes);
    });
  });
}

void adam_step(const Pool& pool, const Updates& u, bool decoupled) {
  const float sign = u.maximize ? -1.f : 1.f;
  each_part(pool, u, [&](const Updated& array, int64_t start, int64_t count) {
    const Updated a = array;
    const float decay = a.factors[0], mean_share = a.factors[1], keep = a.factors[2], square_share = a.factors[3];
    const float eps = a.factors[4], rate = a.factors[5], scale = a.factors[6];
    each_vector<float>(count, [&](int64_t i, auto lanes) {
      const int64_t at = start + i;
      VecF p = load(a.old[0] + at, lanes), g = sign * load(a.gradient + at, lanes);
      if (decoupled)
        p = decay * p;
      else
        g = g + decay * p;
      VecF mean = load(a.old[1] + at, lanes), square = load(a.old[2] + at, lanes);
      mean = mean + mean_share * (g - mean);
      square = keep * square + square_share * (g * g);
      store(a.now[1] + at, mean, lanes);
      store(a.now[2] + at, square, lanes);
      if (a.old[3]) {
        square = maximum(load(a.old[3] + at, lanes), square);
        store(a.now[3] + at, square, lanes);
      }
      store(a.now[0] + at, p - rate * mean / (sqrt(square) / scale + eps), lanes);
    });
  });
}

}  // namespace weft::WEFT_VARIANT
