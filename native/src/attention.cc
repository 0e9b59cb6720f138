// Attention without the array of scores: blocks of queries meet blocks of keys, and each score lives in cache.
// Softmax is corrected as further keys come (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867); the backward
// pass computes the scores again (Dao et al., https://arxiv.org/abs/2205.14135).
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kKeys = 128;     // of a block
constexpr int64_t kQueries = 32;   // of a block: 32 x 128 scores are 16 KiB
constexpr int64_t kTask = 128;     // queries of a task: what a block of keys is transposed for
constexpr float kInfinity = __builtin_inff();

// How many keys of the block [first, first + count) some query before `end` sees.
INLINE int64_t seen(const Attention& a, int64_t end, int64_t first, int64_t count) {
  return a.causal ? least(count, end - first) : count;
}
// The keys of that block that query i sees; none if it lies before all of them.
INLINE int64_t seen_by(const Attention& a, int64_t i, int64_t first, int64_t count) {
  return a.causal ? most<int64_t>(0, least(count, i + 1 - first)) : count;
}
INLINE int64_t whole(int64_t count) { return ceil_div(count, kLanesF) * kLanesF; }

// Rows of scores become weights e^(scale s - maximum), and what was summed up so far is scaled to the new maximum.
// Lanes behind the keys that a query sees become 0.
INLINE void soften(const Attention& a, int64_t i, int64_t first, int64_t count, int64_t width, float* s, float* out,
                   float& top, float& total) {
  const int64_t here = seen_by(a, i, first, count), full = whole(width);
  for (int64_t j = here; j < full; j++) s[j] = -kInfinity;
  VecF highest = splat(-kInfinity);
  for (int64_t j = 0; j < full; j += kLanesF) {
    const VecF x = load(s + j) * a.scale;
    store(s + j, x);
    highest = x > highest ? x : highest;
  }
  const float before = top, now = most(before, maximum(highest));
  const float base = now == -kInfinity ? 0.f : now;  // all scores are -inf: weights are 0, and 0 / 0 is the result
  VecF added{};
  for (int64_t j = 0; j < full; j += kLanesF) {
    const VecF e = exp(load(s + j) - base);
    store(s + j, e);
    added += e;
  }
  top = now;
  if (first == 0) {
    total = sum(added);
    return;
  }
  const float keep = maximum(exp(splat(before - base)));
  total = total * keep + sum(added);
  if (keep == 1.f) return;
  int64_t d = 0;
  for (; d + kLanesF <= a.features; d += kLanesF) store(out + d, load(out + d) * keep);
  for (; d < a.features; d++) out[d] *= keep;
}

}  // namespace

void attention(const Pool& pool, const Attention& a, const float* q, const float* k, const float* v, float* out,
               float* lse) {
  const int64_t parts = ceil_div(a.queries, kTask), D = a.features, group = a.kv_heads ? a.heads / a.kv_heads : 1;
  parallel(pool, a.batch * a.heads * parts, [&](int64_t task) {
    // The last queries first: under a causal mask they have most to do.
    const int64_t part = parts - 1 - task % parts, head = task / parts;
    const int64_t kv = head / a.heads * a.kv_heads + head % a.heads / group;
    const int64_t begin = part * kTask, end = least(a.queries, begin + kTask);
    const float *qs = q + head * a.queries * D, *ks = k + kv * a.keys * D, *vs = v + kv * a.keys * D;
    float *os = out + head * a.queries * D, *ls = lse + head * a.queries;
    float* turned = scratch_of<float>(0, kKeys * D);  // a block of keys, (features, keys)
    float* scores = scratch_of<float>(1, kQueries * kKeys);
    float top[kTask], total[kTask];
    for (int64_t i = 0; i < kTask; i++) top[i] = -kInfinity, total[i] = 0;
    if (!a.keys) clear(os + begin * D, (end - begin) * D);
    for (int64_t j = 0; j < a.keys && seen(a, end, j, 1) > 0; j += kKeys) {
      const int64_t count = least(kKeys, a.keys - j);
      transpose(count, D, ks + j * D, D, turned, kKeys);
      for (int64_t i = begin; i < end; i += kQueries) {
        const int64_t rows = least(kQueries, end - i), width = seen(a, i + rows, j, count);
        if (width <= 0) continue;
        multiply_here<float>(rows, width, D, {qs + i * D, D, 1}, turned, kKeys, scores, kKeys);
        for (int64_t r = 0; r < rows; r++)
          soften(a, i + r, j, count, width, scores + r * kKeys, os + (i + r) * D, top[i + r - begin],
                 total[i + r - begin]);
        // Of the rows of a block under a causal mask, the first see fewer keys.
        for (int64_t r = 0; r < rows; r += 8) {
          const int64_t h = least<int64_t>(8, rows - r), reach = seen(a, i + r + h, j, count);
          float* o = os + (i + r) * D;
          if (reach > 0 || !j)
            multiply_here<float>(h, D, most<int64_t>(reach, 0), {scores + r * kKeys, kKeys, 1}, vs + j * D, D, o, D,
                                 j ? o : nullptr, D);
        }
      }
    }
    for (int64_t i = begin; i < end; i++) {
      const float share = 1.f / total[i - begin];
      float* o = os + i * D;
      if (a.keys)
        for (int64_t d = 0; d < D; d++) o[d] *= share;
      ls[i] = top[i - begin] + std::log(total[i - begin]);
    }
  });
}

// A task is one head of the keys, with all query heads that share it: what is summed up is one thread's.
void attention_backward(const Pool& pool, const Attention& a, const float* g, const float* out, const float* lse,
                        const float* q, const float* k, const float* v, float* dq, float* dk, float* dv) {
  const int64_t D = a.features, group = a.kv_heads ? a.heads / a.kv_heads : 1;
  parallel(pool, a.batch * a.kv_heads, [&](int64_t kv) {
    const float *ks = k + kv * a.keys * D, *vs = v + kv * a.keys * D;
    float *dks = dk + kv * a.keys * D, *dvs = dv + kv * a.keys * D;
    float *turned_k = scratch_of<float>(0, kKeys * D), *turned_v = scratch_of<float>(1, kKeys * D);
    float *weights = scratch_of<float>(2, kQueries * kKeys), *grads = scratch_of<float>(3, kQueries * kKeys);
    float* along = scratch_of<float>(4, group * a.queries);  // g . out of each query
    const int64_t first_head = kv / a.kv_heads * a.heads + kv % a.kv_heads * group, rows_all = group * a.queries;
    const float *qs = q + first_head * a.queries * D, *gs = g + first_head * a.queries * D;
    const float *os = out + first_head * a.queries * D, *ls = lse + first_head * a.queries;
    float* dqs = dq + first_head * a.queries * D;
    for (int64_t i = 0; i < rows_all; i++) {
      const Mask mask(D % kLanesF);
      VecF s{};
      int64_t d = 0;
      for (; d + kLanesF <= D; d += kLanesF) s += load(gs + i * D + d) * load(os + i * D + d);
      if (d < D) s += load_part(gs + i * D + d, mask) * load_part(os + i * D + d, mask);
      along[i] = sum(s);
    }
    clear(dqs, rows_all * D), clear(dks, a.keys * D), clear(dvs, a.keys * D);
    for (int64_t j = 0; j < a.keys; j += kKeys) {
      const int64_t count = least(kKeys, a.keys - j);
      transpose(count, D, ks + j * D, D, turned_k, kKeys);
      transpose(count, D, vs + j * D, D, turned_v, kKeys);
      for (int64_t h = 0; h < group; h++)
        for (int64_t i = a.causal ? j / kQueries * kQueries : 0; i < a.queries; i += kQueries) {
          const int64_t rows = least(kQueries, a.queries - i), width = seen(a, i + rows, j, count);
          const int64_t at = h * a.queries + i, full = whole(width);
          multiply_here<float>(rows, width, D, {qs + at * D, D, 1}, turned_k, kKeys, weights, kKeys);
          multiply_here<float>(rows, width, D, {gs + at * D, D, 1}, turned_v, kKeys, grads, kKeys);
          for (int64_t r = 0; r < rows; r++) {
            float *p = weights + r * kKeys, *e = grads + r * kKeys;
            const float l = ls[at + r], mean = along[at + r];
            for (int64_t c = seen_by(a, i + r, j, count); c < full; c++) p[c] = -kInfinity, e[c] = 0;
            for (int64_t c = 0; c < full; c += kLanesF) {
              const VecF w = exp(load(p + c) * a.scale - l);
              store(p + c, w);
              store(e + c, w * (load(e + c) - mean) * a.scale);
            }
          }
          multiply_here<float>(rows, D, width, {grads, kKeys, 1}, ks + j * D, D, dqs + at * D, D, dqs + at * D, D);
          multiply_here<float>(width, D, rows, {grads, 1, kKeys}, qs + at * D, D, dks + j * D, D, dks + j * D, D);
          multiply_here<float>(width, D, rows, {weights, 1, kKeys}, gs + at * D, D, dvs + j * D, D, dvs + j * D, D);
        }
    }
  });
}

}  // namespace weft::WEFT_VARIANT
