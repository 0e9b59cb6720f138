// What the kernels are called with. Only plain types: each kernel is compiled once for AVX2 and once for AVX-512, and
// an inline function of a shared header, compiled with AVX-512 by chance, would also be linked into the AVX2 kernels.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft {

// Runs task(arg, i) for each i < count, on the caller's thread and on whatever threads of XLA's pool come by.
struct Pool {
  void* self;
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

// All steps of a recurrent layer: z, the projected inputs, and gates are (steps, batch, gates * hidden), outputs
// (steps, batch, hidden), states (batch, hidden), weight (gates * hidden, hidden). An LSTM's gates are ordered input,
// forget, cell, output, and a GRU's reset, update, candidate. `reverse` goes from the last step to the first. From a
// sequence's length on its states do not change, its outputs and gates are 0, and its cells are the last state.
struct Recurrent {
  int64_t steps, batch, hidden;
  bool reverse;
  const int64_t* lengths;
};

// Images (images, channels, plane); what belongs to a channel is (channels).
struct Channels {
  int64_t images, channels, plane;
};

// A matrix of so many rows. Layer normalisation has weights for the elements of a row, and cross entropy a class for
// each row, negative for none, whose loss and gradient are 0.
struct Rows {
  int64_t count, width;
};

#define WEFT_KERNELS                                                                                                   \
  void product_f32(const Pool&, const Product&);                                                                       \
  void product_f64(const Pool&, const Product&);                                                                       \
  void conv(const Pool&, const Conv&, const float* x, const float* weight, float* y);                                  \
  void conv_input_gradient(const Pool&, const Conv&, const float* dy, const float* weight, float* dx);                 \
  void conv_weight_gradient(const Pool&, const Conv&, const float* x, const float* dy, float* dweight);                \
  void channel_sums(const Pool&, const Channels&, const float* x, float* sums);                                        \
  void batch_norm(const Pool&, const Channels&, float eps, const float* x, const float* weight, const float* bias,     \
                  float* y, float* mean, float* variance, float* rstd);                                                \
  void batch_norm_backward(const Pool&, const Channels&, const float* g, const float* x, const float* mean,            \
                           const float* rstd, const float* weight, float* dx, float* dweight, float* dbias);           \
  void layer_norm(const Pool&, const Rows&, float eps, const float* x, const float* weight, const float* bias,         \
                  float* y, float* mean, float* rstd);                                                                 \
  void layer_norm_backward(const Pool&, const Rows&, const float* g, const float* x, const float* mean,                \
                           const float* rstd, const float* weight, float* dx, float* dweight, float* dbias);           \
  void cross_entropy(const Pool&, const Rows&, const float* x, const int64_t* classes, float* losses, float* spread);  \
  void cross_entropy_backward(const Pool&, const Rows&, const float* g, const float* x, const int64_t* classes,        \
                              const float* spread, float* dx);                                                         \
  void attention(const Pool&, const Attention&, const float* q, const float* k, const float* v, float* out,            \
                 float* lse);                                                                                          \
  void attention_backward(const Pool&, const Attention&, const float* g, const float* out, const float* lse,           \
                          const float* q, const float* k, const float* v, float* dq, float* dk, float* dv);            \
  void lstm(const Pool&, const Recurrent&, const float* z, const float* h0, const float* c0, const float* weight,      \
            float* ys, float* h, float* c, float* cells, float* gates);                                                \
  void lstm_backward(const Pool&, const Recurrent&, const float* g_ys, const float* g_h, const float* g_c,             \
                     const float* gates, const float* cells, const float* c0, const float* weight, float* dz,          \
                     float* dh, float* dc);                                                                            \
  void gru(const Pool&, const Recurrent&, const float* z, const float* h0, const float* weight, const float* bias,     \
           float* ys, float* h, float* gates, float* inner);                                                           \
  void gru_backward(const Pool&, const Recurrent&, const float* g_ys, const float* g_h, const float* gates,            \
                    const float* inner, const float* before, const float* weight, float* dz, float* dsums, float* dh); \
  void rnn(const Pool&, const Recurrent&, bool relu, const float* z, const float* h0, const float* weight, float* ys,  \
           float* h);                                                                                                  \
  void rnn_backward(const Pool&, const Recurrent&, bool relu, const float* g_ys, const float* g_h, const float* ys,    \
                    const float* weight, float* dz, float* dh);

namespace avx2 {
WEFT_KERNELS
}
namespace avx512 {
WEFT_KERNELS
}
#undef WEFT_KERNELS

}  // namespace weft
