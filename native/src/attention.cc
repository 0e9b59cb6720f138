// Attention without the array of scores: blocks of queries meet blocks of keys, and each score lives in cache.
// Softmax is corrected as further keys come (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867); the backward
// pass computes the scores again (Dao et al., https://arxiv.org/abs/2205.14135).
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kKeys = 128;             // of a block
constexpr int64_t kQueries = 64;           // of a block
constexpr int64_t kOnDiagonal = 16;        // queries of a block that sees a part of its keys, under a causal mask
constexpr int64_t kTask = 256;             // queries of a task: what a block of keys is transposed for
constexpr int64_t kRow = kKeys + kLanesF;  // from row to row of a block: no power of two, for the sake of caches
constexpr float kInfinity = __builtin_inff();

enum class Masked { kNot, kSeen, kBias };

using Bytes = uint8_t __attribute__((vector_size(kLanesF)));

INLINE int64_t whole(int64_t count) { return ceil_div(count, kLanesF) * kLanesF; }

// How many keys of the block [first, first + count) some query before `end` sees.
INLINE int64_t seen(const Attention& a, int64_t end, int64_t first, int64_t count) {
  return a.causal ? least(count, end - first) : count;
}
// The keys of that block that query i sees; none if it lies before all of them.
INLINE int64_t seen_by(const Attention& a, int64_t i, int64_t first, int64_t count) {
  return a.causal ? most<int64_t>(0, least(count, i + 1 - first)) : count;
}
// How many queries make a block from query i on, with keys from `first` on.
INLINE int64_t queries_from(const Attention& a, int64_t i, int64_t end, int64_t first) {
  return least(a.causal && i < first + kKeys ? kOnDiagonal : kQueries, end - i);
}
// The head of the keys that a head of the queries belongs to, both counted through the batch.
INLINE int64_t kv_head(const Attention& a, int64_t head) {
  return head / a.heads * a.kv_heads + head % a.heads / (a.heads / a.kv_heads);
}
// Where the mask has its element of a head and a query, for key 0.
INLINE int64_t mask_row(const Attention& a, int64_t head, int64_t i) {
  return head / a.heads * a.mask_strides[0] + head % a.heads * a.mask_strides[1] + i * a.mask_strides[2];
}

// `x` where the first bytes are not 0, and `other` elsewhere. No byte behind them is read.
INLINE VecF where(const uint8_t* bytes, int64_t lanes, VecF x, VecF other) {
  Bytes b{};
  if (lanes >= kLanesF)
    __builtin_memcpy(&b, bytes, kLanesF);
  else
    for (int64_t l = 0; l < lanes; l++) b[l] = bytes[l];
  return __builtin_convertvector(b, VecU) != 0 ? x : other;
}

// Whether the mask hides all of a block's keys from all of its queries. Others are found out at their first elements.
template <Masked MASKED>
INLINE bool hidden(const Attention& a, int64_t head, int64_t i, int64_t rows, int64_t j, int64_t count) {
  if constexpr (MASKED == Masked::kNot) return false;
  const int64_t lines = a.mask_strides[2] ? rows : 1, length = a.mask_strides[3] ? count : 1;
  for (int64_t r = 0; r < lines; r++) {
    const int64_t at = mask_row(a, head, i + r) + j * a.mask_strides[3];
    for (int64_t c = at; c < at + length; c++)
      if (MASKED == Masked::kSeen ? a.seen[c] != 0 : a.bias[c] != -kInfinity) return false;
  }
  return true;
}

// A vector of scores: the product times the scale, masked; `at` is its place in the mask. Lanes from `lanes` on are
// -inf.
template <Masked MASKED>
INLINE VecF score(const Attention& a, const float* product, int64_t at, int64_t lanes) {
  const VecF none = splat(-kInfinity);
  if (lanes <= 0) return none;
  VecF x = load(product) * a.scale;
  const bool is_row = a.mask_strides[3];  // not one element for all keys
  if constexpr (MASKED == Masked::kSeen) {
    if (is_row)
      x = where(a.seen + at, lanes, x, none);
    else if (!a.seen[at])
      x = none;
  }
  if constexpr (MASKED == Masked::kBias) {
    const float* bias = a.bias + at;
    x += !is_row ? splat(*bias) : lanes >= kLanesF ? load(bias) : load_part(bias, Mask(lanes));
  }
  return lanes < kLanesF ? only(x, Mask(lanes), -kInfinity) : x;
}

// A vector of weights with those dropped that are not kept; `at` is its place among all.
INLINE VecF thinned(const Attention& a, int64_t at, int64_t lanes, VecF x) {
  return a.kept ? where(a.kept + at, lanes, x * a.kept_factor, VecF{}) : x;
}

// Lane i is `f` over all lanes of vector i, of as many as there are lanes.
template <class F>
INLINE VecF across(const float* vectors, const F& f) {
  float turned[kLanesF * kLanesF];
  transpose(kLanesF, kLanesF, vectors, kLanesF, turned, kLanesF);
  VecF x = load(turned);
  UNROLL for (int i = 1; i < kLanesF; i++) x = f(x, load(turned + i * kLanesF));
  return x;
}

// Up to kLanesF rows of products, of queries from i on with keys from j on, become weights e^(score - top of the row),
// and what was summed up so far is scaled to the new top.
template <Masked MASKED>
void soften(const Attention& a, int64_t head, int64_t i, int64_t rows, int64_t j, int64_t count, int64_t width,
            float* products, float* out, float* top, float* total) {
  const int64_t full = whole(width);
  float of_rows[kLanesF * kLanesF];  // a vector of each row
  for (int64_t r = 0; r < kLanesF; r++) {
    VecF highest = splat(-kInfinity);
    if (r < rows) {
      float* s = products + r * kRow;
      const int64_t here = seen_by(a, i + r, j, count), at = mask_row(a, head, i + r) + j * a.mask_strides[3];
      for (int64_t c = 0; c < full; c += kLanesF) {
        const VecF x = score<MASKED>(a, s + c, at + c * a.mask_strides[3], here - c);
        store(s + c, x);
        highest = x > highest ? x : highest;
      }
    }
    store(of_rows + r * kLanesF, highest);
  }
  const VecF before = load(top), here = across(of_rows, [](VecF x, VecF y) { return x > y ? x : y; });
  const VecF now = here > before ? here : before;
  const VecF base = now == -kInfinity ? VecF{} : now;  // where nothing is seen so far, weights are 0
  float bases[kLanesF], keeps[kLanesF];
  store(bases, base);
  store(keeps, exp_below(before - base));
  for (int64_t r = 0; r < rows; r++) {
    float* s = products + r * kRow;
    VecF added{};
    for (int64_t c = 0; c < full; c += kLanesF) {
      const VecF e = exp_below(load(s + c) - bases[r]);
      store(s + c, e);
      added += e;
    }
    store(of_rows + r * kLanesF, added);
    if (a.kept) {
      const int64_t at = (head * a.queries + i + r) * a.keys + j;
      for (int64_t c = 0; c < full; c += kLanesF) store(s + c, thinned(a, at + c, count - c, load(s + c)));
    }
    if (keeps[r] == 1.f) continue;
    const int64_t D = a.value_features;
    float* o = out + r * D;
    each_vector<float>(D, [&](int64_t d, auto lanes) { store(o + d, load(o + d, lanes) * keeps[r], lanes); });
  }
  store(top, now);
  store(total, load(total) * load(keeps) + across(of_rows, [](VecF x, VecF y) { return x + y; }));
}

template <Masked MASKED>
void forward(const Pool& pool, const Attention& a, const float* q, const float* k, const float* v, float* out,
             float* lse) {
  const int64_t parts = ceil_div(a.queries, kTask), D = a.features, E = a.value_features;
  parallel(pool, a.batch * a.heads * parts, [&](int64_t task) {
    // The last queries first: under a causal mask they have most to do.
    const int64_t heads = a.batch * a.heads, part = parts - 1 - task / heads, head = task % heads;
    const int64_t begin = part * kTask, end = least(a.queries, begin + kTask), kv = kv_head(a, head);
    const float *qs = q + head * a.queries * D, *ks = k + kv * a.keys * D, *vs = v + kv * a.keys * E;
    float *os = out + head * a.queries * E, *ls = lse + head * a.queries;
    float* turned = scratch_of<float>(0, kRow * D);  // a block of keys, (features, keys)
    float* weights = scratch_of<float>(1, kQueries * kRow);
    float top[kTask], total[kTask]{};
    for (float& x : top) x = -kInfinity;
    clear(os + begin * E, (end - begin) * E);
    for (int64_t j = 0; j < a.keys && seen(a, end, j, 1) > 0; j += kKeys) {
      const int64_t count = least(kKeys, a.keys - j);
      transpose(count, D, ks + j * D, D, turned, kRow);
      for (int64_t i = begin, rows; i < end; i += rows) {
        rows = queries_from(a, i, end, j);
        const int64_t width = seen(a, i + rows, j, count);
        if (width <= 0 || hidden<MASKED>(a, head, i, rows, j, count)) continue;
        multiply_here<float>(rows, whole(width), D, {qs + i * D, D, 1}, turned, kRow, weights, kRow);
        for (int64_t r = 0; r < rows; r += kLanesF)
          soften<MASKED>(a, head, i + r, least<int64_t>(kLanesF, rows - r), j, count, width, weights + r * kRow,
                         os + (i + r) * E, top + i + r - begin, total + i + r - begin);
        float* o = os + i * E;
        multiply_here<float>(rows, E, width, {weights, kRow, 1}, vs + j * E, E, o, E, o, E);
      }
    }
    for (int64_t i = begin; i < end; i++) {
      const float sum = total[i - begin], share = 1.f / (sum == 0 ? 1.f : sum);
      for (int64_t d = i * E; d < (i + 1) * E; d++) os[d] *= share;
      ls[i] = top[i - begin] + __builtin_logf(sum);
    }
  });
}

// Rows of products q k become weights, and those of g v the gradients of the products q k.
template <Masked MASKED>
void differentiate(const Attention& a, int64_t head, int64_t i, int64_t rows, int64_t j, int64_t count, int64_t width,
                   const float* lse, const float* along, float* weights, float* grads) {
  for (int64_t r = 0; r < rows; r++, i++) {
    float *p = weights + r * kRow, *e = grads + r * kRow;
    const float l = lse[r] == -kInfinity ? 0.f : lse[r], mean = along[r];
    const int64_t here = seen_by(a, i, j, count), at = mask_row(a, head, i) + j * a.mask_strides[3];
    const int64_t place = (head * a.queries + i) * a.keys + j;
    for (int64_t c = 0; c < width; c += kLanesF) {
      const VecF w = exp_below(score<MASKED>(a, p + c, at + c * a.mask_strides[3], here - c) - l);
      const VecF dw = load(e + c);
      store(p + c, thinned(a, place + c, count - c, w));
      store(e + c, w * (thinned(a, place + c, count - c, dw) - mean) * a.scale);
    }
  }
}

// sums[i] = a[i] . b[i], rows of `size`
void inner_products(int64_t rows, int64_t size, const float* a, const float* b, float* sums) {
  for (int64_t i = 0; i < rows; i++, a += size, b += size)
    sums[i] = sum_each(size, [&](int64_t d, auto lanes) { return load(a + d, lanes) * load(b + d, lanes); });
}

// A task is a part of the keys of one head, with all query heads that share it: its dk and dv are sums of one thread.
template <Masked MASKED>
void backward(const Pool& pool, const Attention& a, int64_t parts, const float* g, const float* out, const float* lse,
              const float* q, const float* k, const float* v, float* dq, float* dk, float* dv) {
  const int64_t D = a.features, E = a.value_features, group = a.kv_heads ? a.heads / a.kv_heads : 1;
  const int64_t kv_heads = a.batch * a.kv_heads, of_part = ceil_div(ceil_div(a.keys, parts), kKeys) * kKeys;
  // The first keys first: under a causal mask they have most to do.
  parallel(pool, parts * kv_heads, [&](int64_t task) {
    const int64_t part = task / kv_heads, kv = task % kv_heads, first_head = kv * group, all = group * a.queries;
    const int64_t begin = least(a.keys, part * of_part), end = least(a.keys, begin + of_part);
    const float *ks = k + kv * a.keys * D, *vs = v + kv * a.keys * E;
    float *dks = dk + kv * a.keys * D, *dvs = dv + kv * a.keys * E;
    float *turned_k = scratch_of<float>(0, kRow * D), *turned_v = scratch_of<float>(1, kRow * E);
    float *weights = scratch_of<float>(2, kQueries * kRow), *grads = scratch_of<float>(3, kQueries * kRow);
    float* along = scratch_of<float>(4, all);  // g . out of each query
    const float *qs = q + first_head * a.queries * D, *gs = g + first_head * a.queries * E;
    float* dqs = dq + (part * a.batch * a.heads + first_head) * a.queries * D;
    inner_products(all, E, gs, out + first_head * a.queries * E, along);
    clear(dqs, all * D), clear(dks + begin * D, (end - begin) * D), clear(dvs + begin * E, (end - begin) * E);
    for (int64_t j = begin; j < end; j += kKeys) {
      const int64_t count = least(kKeys, end - j);
      transpose(count, D, ks + j * D, D, turned_k, kRow);
      transpose(count, E, vs + j * E, E, turned_v, kRow);
      for (int64_t h = 0; h < group; h++)
        for (int64_t i = a.causal ? j : 0, rows; i < a.queries; i += rows) {
          rows = queries_from(a, i, a.queries, j);
          const int64_t width = seen(a, i + rows, j, count);
          if (hidden<MASKED>(a, first_head + h, i, rows, j, count)) continue;
          const int64_t at = h * a.queries + i, full = whole(width);
          const float *x = qs + at * D, *y = gs + at * E;
          multiply_here<float>(rows, full, D, {x, D, 1}, turned_k, kRow, weights, kRow);
          multiply_here<float>(rows, full, E, {y, E, 1}, turned_v, kRow, grads, kRow);
          differentiate<MASKED>(a, first_head + h, i, rows, j, count, width, lse + first_head * a.queries + at,
                                along + at, weights, grads);
          multiply_here<float>(rows, D, width, {grads, kRow, 1}, ks + j * D, D, dqs + at * D, D, dqs + at * D, D);
          multiply_here<float>(width, D, rows, {grads, 1, kRow}, x, D, dks + j * D, D, dks + j * D, D);
          multiply_here<float>(width, E, rows, {weights, 1, kRow}, y, E, dvs + j * E, E, dvs + j * E, E);
        }
    }
  });
}

}  // namespace

void attention(const Pool& pool, const Attention& a, const float* q, const float* k, const float* v, float* out,
               float* lse) {
  const auto kernel = a.seen ? forward<Masked::kSeen> : a.bias ? forward<Masked::kBias> : forward<Masked::kNot>;
  kernel(pool, a, q, k, v, out, lse);
}

void attention_backward(const Pool& pool, const Attention& a, int64_t parts, const float* g, const float* out,
                        const float* lse, const float* q, const float* k, const float* v, float* dq, float* dk,
                        float* dv) {
  const auto kernel = a.seen ? backward<Masked::kSeen> : a.bias ? backward<Masked::kBias> : backward<Masked::kNot>;
  kernel(pool, a, parts, g, out, lse, q, k, v, dq, dk, dv);
}

}  // namespace weft::WEFT_VARIANT
