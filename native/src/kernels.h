// What the kernels are called with. Only plain types: most kernels are compiled once for AVX2 and once for AVX-512, and
// an inline function of a shared header, compiled with AVX-512 by chance, would also be linked into the AVX2 kernels.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft {

// Runs task(arg, i) for each i < count, on the caller's thread and on whatever threads of XLA's pool come by: at most
// `threads` in all.
struct Pool {
  void* self;
  int64_t threads;
  void (*run)(void* self, int64_t count, void (*task)(const void* arg, int64_t i), const void* arg);
};

// Memory of this thread, 64-byte aligned, kept for the next call. Another use of the same slot overwrites it.
void* scratch(int slot, size_t bytes);

// c (batch, m, n) = op(a) op(b) + bias (n), row-major; op(a) is (m, k) and stored (k, m) if `transpose_a`. Without a
// bias, `bias` is null.
struct Product {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
  const void *a, *b, *bias;
  void* c;
};

// A 2-D convolution, channels-last: x (n, h, w, c), weight (kh, kw, c, o), y (n, oh, ow, o). `top` and `left` are the
// padding at the start; that at the end follows from the sizes.
struct Conv {
  int64_t n, h, w, c, o, kh, kw, oh, ow;
  int64_t stride_h, stride_w, dilation_h, dilation_w, top, left;
};

// q and out (batch, heads, queries, features), k and v (batch, kv_heads, keys, features), lse (batch, heads, queries).
// Causal: query i sees the keys j <= i.
struct Attention {
  int64_t batch, heads, kv_heads, queries, keys, features;
  bool causal;
  float scale;
};

// All steps of an LSTM layer: z (steps, batch, 4 hidden), states (batch, hidden), weight (4 hidden, hidden); gates are
// ordered input, forget, cell, output. `reverse` goes from the last step to the first.
struct Lstm {
  int64_t steps, batch, hidden;
  bool reverse;
};

#define WEFT_KERNELS                                                                                                 \
  void product_f32(const Pool&, const Product&);                                                                     \
  void product_f64(const Pool&, const Product&);                                                                     \
  void conv(const Pool&, const Conv&, const float* x, const float* weight, float* y);                                \
  void conv_input_gradient(const Pool&, const Conv&, const float* dy, const float* weight, float* dx);               \
  void conv_weight_gradient(const Pool&, const Conv&, const float* x, const float* dy, float* dweight);              \
  void attention(const Pool&, const Attention&, const float* q, const float* k, const float* v, float* out,          \
                 float* lse);                                                                                        \
  void attention_backward(const Pool&, const Attention&, const float* g, const float* out, const float* lse,         \
                          const float* q, const float* k, const float* v, float* dq, float* dk, float* dv);          \
  void lstm(const Pool&, const Lstm&, const float* z, const float* h0, const float* c0, const float* weight,         \
            float* ys, float* cells, float* gates);                                                                  \
  void lstm_backward(const Pool&, const Lstm&, const float* g_ys, const float* g_h, const float* g_c,                \
                     const float* gates, const float* cells, const float* c0, const float* weight, float* dz,        \
                     float* dh0, float* dc0);

namespace avx2 {
WEFT_KERNELS
}
namespace avx512 {
WEFT_KERNELS
}
#undef WEFT_KERNELS
// For bfloat16, beside those of AVX-512.
namespace avx512_bf16 {
void product_bf16(const Pool&, const Product&);
}
namespace amx {
void product_bf16(const Pool&, const Product&);
}

}  // namespace weft
