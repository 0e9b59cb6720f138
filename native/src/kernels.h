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
// bias, `bias` is null. Rows of `a` and `b`, as they are stored, begin lda and ldb elements apart.
struct Product {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
  const void *a, *b, *bias;
  void* c;
  int64_t lda, ldb;
};

// One dim of a convolution: sizes of the image, the kernel and the result, and the padding at the start; that at the
// end follows from the sizes.
struct Dim {
  int64_t in, kernel, out, stride, dilation, start;
};

// A convolution of `groups` times c channels to as many times o: x (n, groups, c, d.in, h.in, w.in), weight (groups, o,
// c, d.kernel, h.kernel, w.kernel), y (n, groups, o, d.out, h.out, w.out).
struct Conv {
  int64_t n, groups, c, o;
  Dim d, h, w;
};

// q (batch, heads, queries, features), k (batch, kv_heads, keys, features), v (batch, kv_heads, keys, value_features),
// out (batch, heads, queries, value_features), lse (batch, heads, queries). Causal: query i sees the keys j <= i.
// Of three arrays that belong to the scores each may be null: those where `seen` is 0 are -inf, `bias` is added to
// them, and weights where `kept` (batch, heads, queries, keys) is 0 are dropped, others multiplied by `kept_factor`.
// There is one mask at most, `seen` or `bias`; its strides are by batch, head, query and key, 0 where it broadcasts.
struct Attention {
  int64_t batch, heads, kv_heads, queries, keys, features, value_features;
  bool causal;
  float scale;
  const uint8_t* seen;
  const float* bias;
  int64_t mask_strides[4];
  const uint8_t* kept;
  float kept_factor;
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
// each row, negative for none, whose loss and gradient are 0; a row's norms are its maximum and the logarithm of the
// sum of e^(x - maximum).
struct Rows {
  int64_t count, width;
};

// x (outer, count, inner), of which one number is left of each `count`: y (outer, inner). Nothing is empty.
struct Folded {
  int64_t outer, count, inner;
};

// An array that an optimizer updates with its gradient: old[0] and its states of before, and where the new ones go,
// which may be the same memory. States that the optimizer does not keep are null. `factors` are numbers of the step.
struct Updated {
  int64_t size;
  const float *factors, *gradient;
  const float* old[4];
  float* now[4];
};
struct Updates {
  int64_t count;
  const Updated* arrays;
  bool maximize;
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
  void cross_entropy(const Pool&, const Rows&, const float* x, const int64_t* classes, float* losses, float* norms);   \
  void cross_entropy_backward(const Pool&, const Rows&, const float* g, const float* x, const int64_t* classes,        \
                              const float* norms, float* dx);                                                          \
  void extremes_f32(const Pool&, const Folded&, bool least, const float* x, float* y);                                 \
  void extremes_f64(const Pool&, const Folded&, bool least, const double* x, double* y);                               \
  void extremes_f16(const Pool&, const Folded&, bool least, const int16_t* x, int16_t* y);                             \
  void extremes_bf16(const Pool&, const Folded&, bool least, const int16_t* x, int16_t* y);                            \
  void attention(const Pool&, const Attention&, const float* q, const float* k, const float* v, float* out,            \
                 float* lse);                                                                                          \
  void attention_backward(const Pool&, const Attention&, int64_t parts, const float* g, const float* out,              \
                          const float* lse, const float* q, const float* k, const float* v, float* dq, float* dk,      \
                          float* dv);                                                                                  \
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
                    const float* weight, float* dz, float* dh);                                                        \
  void sgd_step(const Pool&, const Updates&, bool nesterov);                                                           \
  void adam_step(const Pool&, const Updates&, bool decoupled);

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
