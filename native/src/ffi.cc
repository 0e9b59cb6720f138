// XLA's way in: handlers, threads and memory. Compiled for any x86-64; the kernels are chosen by the CPU when called.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "kernels.h"
#include "variant.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace weft {
namespace {

constexpr int kVersion = 5;  // of the targets; weft.ops._kernels asks for the one that it knows

// --- CPU ------------------------------------------------------------------------------------------------------

int best_variant() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return kNone;
  const char* most = std::getenv("WEFT_NATIVE_VARIANT");  // "avx2", "avx512": that also where there is more, for tests
  if (most && std::string(most) == "avx2") return kAvx2;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return wide ? kAvx512 : kAvx2;
}
}  // namespace

int variant() {
  static const int chosen = best_variant();
  return chosen;
}

namespace {

constexpr int kPairs = 1, kTiles = 2;

// What the CPU has for bfloat16: nothing, AVX-512's products of pairs, or AMX's of tiles. The system has to be asked
// once whether this process may use tiles.
int best_bf16() {
  unsigned a, b, c, leaf, pairs;
  if (variant() != kAvx512 || !__get_cpuid_count(7, 1, &pairs, &b, &c, &leaf) || !(pairs >> 5 & 1)) return kNone;
  const char* most = std::getenv("WEFT_NATIVE_VARIANT");
  if (most && std::string(most) == "avx512") return kPairs;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &leaf) || !(leaf >> 22 & 1) || !(leaf >> 24 & 1)) return kPairs;
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h, and the state's number
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0 ? kTiles : kPairs;
}
int bf16_variant() {
  static const int chosen = best_bf16();
  return chosen;
}
#define KERNEL(name) (variant() == kAvx512 ? &avx512::name : &avx2::name)

// --- threads --------------------------------------------------------------------------------------------------

// The tasks of one call. Threads that come late find no task left, and may do so after the call has returned.
struct Tasks {
  std::atomic<int64_t> next{0}, done{0};
};

// The caller works too, so a call ends also where no thread of the pool comes by: in a forked process there is none.
void run(void* self, int64_t count, void (*task)(const void*, int64_t), const void* arg) {
  auto& pool = *static_cast<ffi::ThreadPool*>(self);
  const int64_t threads = std::min(count, pool.num_threads());
  if (threads <= 1) {
    for (int64_t i = 0; i < count; i++) task(arg, i);
    return;
  }
  auto tasks = std::make_shared<Tasks>();
  auto work = [tasks, count, task, arg] {
    for (int64_t i; (i = tasks->next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      task(arg, i);
      tasks->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t i = 1; i < threads; i++) pool.Schedule(decltype(work)(work));
  work();
  for (int spins = 0; tasks->done.load(std::memory_order_acquire) < count; spins++) {
    if (spins < 4096)
      __builtin_ia32_pause();
    else
      std::this_thread::yield();  // another thread has been stopped within its task
  }
}

}  // namespace

// --- memory ---------------------------------------------------------------------------------------------------

#ifdef __SANITIZE_ADDRESS__
constexpr bool kExact = true;  // so that what is read or written beyond the bytes asked for shows
#else
constexpr bool kExact = false;
#endif

void* scratch(int slot, size_t bytes) {
  struct Slots {
    struct Slot {
      void* memory = nullptr;
      size_t bytes = 0;
    } slots[7];
    ~Slots() {
      for (auto& s : slots) std::free(s.memory);
    }
  };
  static thread_local Slots kept;
  auto& s = kept.slots[slot];
  if (kExact || s.bytes < bytes || !s.memory) {
    std::free(s.memory);
    s.memory = nullptr;
    s.bytes = 0;
    if (posix_memalign(&s.memory, 64, bytes ? bytes : 1)) throw std::bad_alloc();
    s.bytes = bytes;
  }
  return s.memory;
}

namespace {

// --- handlers -------------------------------------------------------------------------------------------------

using Floats = ffi::Buffer<ffi::F32>;
using FloatsOut = ffi::Result<Floats>;
using Integers = ffi::Buffer<ffi::S64>;
using Ints = ffi::Span<const int64_t>;

ffi::Error wrong(const std::string& what) { return ffi::Error::InvalidArgument("weft_native: " + what); }

// The call of a kernel, with XLA's threads.
template <class F>
ffi::Error with_threads(ffi::ThreadPool& threads, F f) {
  const Pool pool{&threads, threads.num_threads(), run};
  f(pool);
  return ffi::Error::Success();
}

template <ffi::DataType T>
ffi::Error product(ffi::ThreadPool threads, bool transpose_a, bool transpose_b, const ffi::Buffer<T>& a,
                   const ffi::Buffer<T>& b, const void* bias, ffi::Result<ffi::Buffer<T>>& c) {
  const auto x = a.dimensions(), y = b.dimensions(), z = c->dimensions();
  const size_t n = z.size();
  if (n < 2 || x.size() != n || y.size() != n) return wrong("a product needs two matrices, or batches of them");
  if (T == ffi::BF16 && !bf16_variant()) return wrong("this CPU has no instructions for bfloat16");
  Product p{1,           z[n - 2],          z[n - 1],         x[transpose_a ? n - 2 : n - 1],
            transpose_a, transpose_b,       a.untyped_data(), b.untyped_data(),
            bias,        c->untyped_data(), x[n - 1],         y[n - 1]};
  for (size_t i = 0; i + 2 < n; i++) p.batch *= z[i];
  return with_threads(threads, [&](const Pool& pool) {
    if constexpr (T == ffi::F32)
      KERNEL(product_f32)(pool, p);
    else if constexpr (T == ffi::F64)
      KERNEL(product_f64)(pool, p);
    else
      (bf16_variant() == kTiles ? &amx::product_bf16 : &avx512_bf16::product_bf16)(pool, p);
  });
}
template <ffi::DataType T>
ffi::Error plain_product(ffi::ThreadPool threads, bool ta, bool tb, ffi::Buffer<T> a, ffi::Buffer<T> b,
                         ffi::Result<ffi::Buffer<T>> c) {
  return product<T>(threads, ta, tb, a, b, nullptr, c);
}
template <ffi::DataType T>
ffi::Error biased_product(ffi::ThreadPool threads, bool ta, bool tb, ffi::Buffer<T> a, ffi::Buffer<T> b,
                          ffi::Buffer<T> bias, ffi::Result<ffi::Buffer<T>> c) {
  return product<T>(threads, ta, tb, a, b, bias.untyped_data(), c);
}

// Of one to three spatial dims; those that are missing have one element.
Conv conv_sizes(Ints x, Ints w, Ints y, Ints stride, Ints dilation, Ints start) {
  const size_t dims = x.size() - 2;
  const auto dim = [&](size_t at) -> Dim {
    if (at < 3 - dims) return {1, 1, 1, 1, 1, 0};
    const size_t i = at - (3 - dims);
    return {x[i + 2], w[i + 2], y[i + 2], stride[i], dilation[i], start[i]};
  };
  const int64_t groups = w[1] ? x[1] / w[1] : 1;
  return {x[0], groups, w[1], w[0] / groups, dim(0), dim(1), dim(2)};
}
ffi::Error conv(ffi::ThreadPool threads, Ints stride, Ints dilation, Ints start, Floats x, Floats w, FloatsOut y) {
  const Conv c = conv_sizes(x.dimensions(), w.dimensions(), y->dimensions(), stride, dilation, start);
  return with_threads(
      threads, [&](const Pool& pool) { KERNEL(conv)(pool, c, x.typed_data(), w.typed_data(), y->typed_data()); });
}
ffi::Error conv_input_gradient(ffi::ThreadPool threads, Ints stride, Ints dilation, Ints start, Floats g, Floats w,
                               FloatsOut dx) {
  const Conv c = conv_sizes(dx->dimensions(), w.dimensions(), g.dimensions(), stride, dilation, start);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(conv_input_gradient)(pool, c, g.typed_data(), w.typed_data(), dx->typed_data());
  });
}
ffi::Error conv_weight_gradient(ffi::ThreadPool threads, Ints stride, Ints dilation, Ints start, Floats g, Floats x,
                                FloatsOut dw) {
  const Conv c = conv_sizes(x.dimensions(), dw->dimensions(), g.dimensions(), stride, dilation, start);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(conv_weight_gradient)(pool, c, x.typed_data(), g.typed_data(), dw->typed_data());
  });
}

Channels channel_sizes(Ints x) {
  Channels s{x[0], x[1], 1};
  for (size_t i = 2; i < x.size(); i++) s.plane *= x[i];
  return s;
}
ffi::Error channel_sums(ffi::ThreadPool threads, Floats x, FloatsOut sums) {
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(channel_sums)(pool, channel_sizes(x.dimensions()), x.typed_data(), sums->typed_data());
  });
}
ffi::Error batch_norm(ffi::ThreadPool threads, Floats x, Floats weight, Floats bias, Floats eps, FloatsOut y,
                      FloatsOut mean, FloatsOut variance, FloatsOut rstd) {
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(batch_norm)(pool, channel_sizes(x.dimensions()), *eps.typed_data(), x.typed_data(), weight.typed_data(),
                       bias.typed_data(), y->typed_data(), mean->typed_data(), variance->typed_data(),
                       rstd->typed_data());
  });
}
ffi::Error batch_norm_backward(ffi::ThreadPool threads, Floats g, Floats x, Floats mean, Floats rstd, Floats weight,
                               FloatsOut dx, FloatsOut dweight, FloatsOut dbias) {
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(batch_norm_backward)(pool, channel_sizes(x.dimensions()), g.typed_data(), x.typed_data(), mean.typed_data(),
                                rstd.typed_data(), weight.typed_data(), dx->typed_data(), dweight->typed_data(),
                                dbias->typed_data());
  });
}

// The mask and the weights that are kept have no elements where there are none.
struct Scores {
  ffi::AnyBuffer mask;
  ffi::Buffer<ffi::PRED> kept;
};
Attention attention_sizes(Ints q, Ints k, Ints v, bool causal, float scale, float kept_factor, const Scores& scores) {
  Attention a{q[0], q[1], k[1], q[2], k[2], q[3], v[3], causal, scale, nullptr, nullptr, {}, nullptr, kept_factor};
  if (scores.kept.element_count()) a.kept = static_cast<const uint8_t*>(scores.kept.untyped_data());
  if (!scores.mask.element_count()) return a;
  const auto sizes = scores.mask.dimensions();
  int64_t stride = 1;
  for (int d = 3; d >= 0; d--) {
    a.mask_strides[d] = sizes[d] == 1 ? 0 : stride;
    stride *= sizes[d];
  }
  if (scores.mask.element_type() == ffi::PRED)
    a.seen = static_cast<const uint8_t*>(scores.mask.untyped_data());
  else
    a.bias = static_cast<const float*>(scores.mask.untyped_data());
  return a;
}
ffi::Error attention(ffi::ThreadPool threads, bool causal, float scale, float kept_factor, Floats q, Floats k, Floats v,
                     ffi::AnyBuffer mask, ffi::Buffer<ffi::PRED> kept, FloatsOut out, FloatsOut lse) {
  const Attention a =
      attention_sizes(q.dimensions(), k.dimensions(), v.dimensions(), causal, scale, kept_factor, {mask, kept});
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(attention)(pool, a, q.typed_data(), k.typed_data(), v.typed_data(), out->typed_data(), lse->typed_data());
  });
}
// dq comes in parts, one for each part of the keys.
ffi::Error attention_backward(ffi::ThreadPool threads, bool causal, float scale, float kept_factor, Floats q, Floats k,
                              Floats v, ffi::AnyBuffer mask, ffi::Buffer<ffi::PRED> kept, Floats g, Floats out,
                              Floats lse, FloatsOut dq, FloatsOut dk, FloatsOut dv) {
  const Attention a =
      attention_sizes(q.dimensions(), k.dimensions(), v.dimensions(), causal, scale, kept_factor, {mask, kept});
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(attention_backward)(pool, a, dq->dimensions()[0], g.typed_data(), out.typed_data(), lse.typed_data(),
                               q.typed_data(), k.typed_data(), v.typed_data(), dq->typed_data(), dk->typed_data(),
                               dv->typed_data());
  });
}

// The last `width` elements of each row lie side by side.
Rows rows_of(const Floats& x, int64_t width) {
  return {width ? static_cast<int64_t>(x.element_count()) / width : 0, width};
}
ffi::Error layer_norm(ffi::ThreadPool threads, Floats x, Floats weight, Floats bias, Floats eps, FloatsOut y,
                      FloatsOut mean, FloatsOut rstd) {
  const Rows rows = rows_of(x, static_cast<int64_t>(weight.element_count()));
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(layer_norm)(pool, rows, *eps.typed_data(), x.typed_data(), weight.typed_data(), bias.typed_data(),
                       y->typed_data(), mean->typed_data(), rstd->typed_data());
  });
}
ffi::Error layer_norm_backward(ffi::ThreadPool threads, Floats g, Floats x, Floats mean, Floats rstd, Floats weight,
                               FloatsOut dx, FloatsOut dweight, FloatsOut dbias) {
  const Rows rows = rows_of(x, static_cast<int64_t>(weight.element_count()));
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(layer_norm_backward)(pool, rows, g.typed_data(), x.typed_data(), mean.typed_data(), rstd.typed_data(),
                                weight.typed_data(), dx->typed_data(), dweight->typed_data(), dbias->typed_data());
  });
}
ffi::Error cross_entropy(ffi::ThreadPool threads, Floats x, Integers classes, FloatsOut losses, FloatsOut norms) {
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(cross_entropy)(pool, rows_of(x, x.dimensions()[1]), x.typed_data(), classes.typed_data(),
                          losses->typed_data(), norms->typed_data());
  });
}
ffi::Error cross_entropy_backward(ffi::ThreadPool threads, Floats g, Floats x, Integers classes, Floats norms,
                                  FloatsOut dx) {
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(cross_entropy_backward)(pool, rows_of(x, x.dimensions()[1]), g.typed_data(), x.typed_data(),
                                   classes.typed_data(), norms.typed_data(), dx->typed_data());
  });
}

// The dims before and after the reduced one have one size each.
template <ffi::DataType T>
ffi::Error extremes(ffi::ThreadPool threads, bool least, ffi::Buffer<T> x, ffi::Result<ffi::Buffer<T>> y) {
  const auto sizes = x.dimensions();
  if (sizes.size() != 3 || y->element_count() != static_cast<size_t>(sizes[0] * sizes[2]))
    return wrong("the numbers to choose from have shape (outer, count, inner), and the extremes (outer, inner)");
  if (!x.element_count()) return wrong("there are no numbers to choose from");
  const Folded s{sizes[0], sizes[1], sizes[2]};
  return with_threads(threads, [&](const Pool& pool) {
    if constexpr (T == ffi::F32)
      KERNEL(extremes_f32)(pool, s, least, x.typed_data(), y->typed_data());
    else if constexpr (T == ffi::F64)
      KERNEL(extremes_f64)(pool, s, least, x.typed_data(), y->typed_data());
    else  // numbers of 16 bits are integers to the kernel
      (T == ffi::F16 ? KERNEL(extremes_f16) : KERNEL(extremes_bf16))(
          pool, s, least, static_cast<const int16_t*>(x.untyped_data()), static_cast<int16_t*>(y->untyped_data()));
  });
}

Recurrent layer_of(Ints ys, bool reverse, const Integers& lengths) {
  return {ys[0], ys[1], ys[2], reverse, lengths.typed_data()};
}
ffi::Error lstm(ffi::ThreadPool threads, bool reverse, Integers lengths, Floats z, Floats h0, Floats c0, Floats weight,
                FloatsOut ys, FloatsOut h, FloatsOut c, FloatsOut cells, FloatsOut gates) {
  const Recurrent layer = layer_of(ys->dimensions(), reverse, lengths);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(lstm)(pool, layer, z.typed_data(), h0.typed_data(), c0.typed_data(), weight.typed_data(), ys->typed_data(),
                 h->typed_data(), c->typed_data(), cells->typed_data(), gates->typed_data());
  });
}
ffi::Error lstm_backward(ffi::ThreadPool threads, bool reverse, Integers lengths, Floats g_ys, Floats g_h, Floats g_c,
                         Floats gates, Floats cells, Floats c0, Floats weight, FloatsOut dz, FloatsOut dh,
                         FloatsOut dc) {
  const Recurrent layer = layer_of(cells.dimensions(), reverse, lengths);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(lstm_backward)(pool, layer, g_ys.typed_data(), g_h.typed_data(), g_c.typed_data(), gates.typed_data(),
                          cells.typed_data(), c0.typed_data(), weight.typed_data(), dz->typed_data(), dh->typed_data(),
                          dc->typed_data());
  });
}
ffi::Error gru(ffi::ThreadPool threads, bool reverse, Integers lengths, Floats z, Floats h0, Floats weight, Floats bias,
               FloatsOut ys, FloatsOut h, FloatsOut gates, FloatsOut inner) {
  const Recurrent layer = layer_of(ys->dimensions(), reverse, lengths);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(gru)(pool, layer, z.typed_data(), h0.typed_data(), weight.typed_data(), bias.typed_data(), ys->typed_data(),
                h->typed_data(), gates->typed_data(), inner->typed_data());
  });
}
ffi::Error gru_backward(ffi::ThreadPool threads, bool reverse, Integers lengths, Floats g_ys, Floats g_h, Floats gates,
                        Floats inner, Floats before, Floats weight, FloatsOut dz, FloatsOut dsums, FloatsOut dh) {
  const Recurrent layer = layer_of(inner.dimensions(), reverse, lengths);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(gru_backward)(pool, layer, g_ys.typed_data(), g_h.typed_data(), gates.typed_data(), inner.typed_data(),
                         before.typed_data(), weight.typed_data(), dz->typed_data(), dsums->typed_data(),
                         dh->typed_data());
  });
}
ffi::Error rnn(ffi::ThreadPool threads, bool reverse, bool relu, Integers lengths, Floats z, Floats h0, Floats weight,
               FloatsOut ys, FloatsOut h) {
  const Recurrent layer = layer_of(ys->dimensions(), reverse, lengths);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(rnn)(pool, layer, relu, z.typed_data(), h0.typed_data(), weight.typed_data(), ys->typed_data(),
                h->typed_data());
  });
}
ffi::Error rnn_backward(ffi::ThreadPool threads, bool reverse, bool relu, Integers lengths, Floats g_ys, Floats g_h,
                        Floats ys, Floats weight, FloatsOut dz, FloatsOut dh) {
  const Recurrent layer = layer_of(ys.dimensions(), reverse, lengths);
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(rnn_backward)(pool, layer, relu, g_ys.typed_data(), g_h.typed_data(), ys.typed_data(), weight.typed_data(),
                         dz->typed_data(), dh->typed_data());
  });
}

// The arrays of an optimizer's step: all parameters, all gradients, then all arrays of each state are the arguments;
// the new ones, in this order but without gradients, are the results. age[i] is the row of the factors for parameter i.
struct Step {
  Floats factors;
  Ints age;
  const ffi::RemainingArgs& args;
  const ffi::RemainingRets& rets;
};
ffi::Error read_step(const Step& s, int64_t width, size_t least, size_t most, std::vector<Updated>& arrays) {
  const size_t n = s.age.size(), columns = n ? s.rets.size() / n : 0;
  if (columns < least || columns > most || s.rets.size() != n * columns || s.args.size() != n * (columns + 1))
    return wrong("a step needs parameters, as many gradients, and as many arrays of each of the optimizer's states");
  const Ints sizes = s.factors.dimensions();
  if (sizes.size() != 2 || sizes[1] != width)
    return wrong("a step needs rows of " + std::to_string(width) + " factors");
  arrays.reserve(n);
  for (size_t i = 0; i < n; i++) {
    if (s.age[i] < 0 || s.age[i] >= sizes[0]) return wrong("a parameter's age is not that of any row of factors");
    const auto gradient = s.args.get<Floats>(n + i);
    if (!gradient) return wrong("a gradient is not float32");
    Updated a{static_cast<int64_t>(gradient->element_count()),
              s.factors.typed_data() + s.age[i] * width,
              gradient->typed_data(),
              {},
              {}};
    for (size_t c = 0; c < columns; c++) {
      const auto old = s.args.get<Floats>((c ? c + 1 : 0) * n + i);
      auto now = s.rets.get<Floats>(c * n + i);
      if (!old || !now) return wrong("a parameter or its state is not float32");
      if (old->element_count() != gradient->element_count() || (*now)->element_count() != gradient->element_count())
        return wrong("a gradient has not as many elements as its parameter and its states");
      a.old[c] = old->typed_data(), a.now[c] = (*now)->typed_data();
    }
    arrays.push_back(a);
  }
  return ffi::Error::Success();
}
ffi::Error sgd_step(ffi::ThreadPool threads, Ints age, bool maximize, bool nesterov, Floats factors,
                    ffi::RemainingArgs args, ffi::RemainingRets rets) {
  std::vector<Updated> arrays;
  if (ffi::Error error = read_step({factors, age, args, rets}, 4, 1, 2, arrays); error.failure()) return error;
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(sgd_step)(pool, {static_cast<int64_t>(arrays.size()), arrays.data(), maximize}, nesterov);
  });
}
ffi::Error adam_step(ffi::ThreadPool threads, Ints age, bool maximize, bool decoupled, Floats factors,
                     ffi::RemainingArgs args, ffi::RemainingRets rets) {
  std::vector<Updated> arrays;
  if (ffi::Error error = read_step({factors, age, args, rets}, 7, 3, 4, arrays); error.failure()) return error;
  return with_threads(threads, [&](const Pool& pool) {
    KERNEL(adam_step)(pool, {static_cast<int64_t>(arrays.size()), arrays.data(), maximize}, decoupled);
  });
}

// A binding with more arguments and results that are arrays of float32.
template <int ARGS, int RESULTS, class B>
auto with(B binding) {
  if constexpr (ARGS > 0)
    return with<ARGS - 1, RESULTS>(std::move(binding).template Arg<Floats>());
  else if constexpr (RESULTS > 1)
    return with<0, RESULTS - 1>(std::move(binding).template Ret<Floats>());
  else
    return std::move(binding).template Ret<Floats>();
}
auto bind_product() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<bool>("transpose_a").Attr<bool>("transpose_b");
}
auto bind_conv() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<Ints>("stride")
      .Attr<Ints>("dilation")
      .Attr<Ints>("start")
      .Arg<Floats>()
      .Arg<Floats>()
      .Ret<Floats>();
}
auto bind_attention() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<bool>("causal")
      .Attr<float>("scale")
      .Attr<float>("kept_factor")
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::Buffer<ffi::PRED>>();
}
auto bind_extremes() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<bool>("least"); }
auto bind_step() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<Ints>("age").Attr<bool>("maximize"); }
auto bind_recurrent() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<bool>("reverse"); }

}  // namespace
}  // namespace weft

// --- what the library exports: a handler for each target, named as the target, and the versions ---------------

using weft::Floats;
using weft::Integers;

#define EXPORT extern "C" __attribute__((visibility("default")))
#define TARGET(name, ...)                         \
  EXPORT XLA_FFI_Error* name(XLA_FFI_CallFrame*); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, __VA_ARGS__)

#define PRODUCTS(word, T)                                                                         \
  TARGET(weft_product_##word, weft::plain_product<T>,                                             \
         weft::bind_product().Arg<ffi::Buffer<T>>().Arg<ffi::Buffer<T>>().Ret<ffi::Buffer<T>>()); \
  TARGET(weft_biased_product_##word, weft::biased_product<T>,                                     \
         weft::bind_product().Arg<ffi::Buffer<T>>().Arg<ffi::Buffer<T>>().Arg<ffi::Buffer<T>>().Ret<ffi::Buffer<T>>())
PRODUCTS(f32, ffi::F32);
PRODUCTS(f64, ffi::F64);
PRODUCTS(bf16, ffi::BF16);
TARGET(weft_conv, weft::conv, weft::bind_conv());
TARGET(weft_conv_input_gradient, weft::conv_input_gradient, weft::bind_conv());
TARGET(weft_conv_weight_gradient, weft::conv_weight_gradient, weft::bind_conv());
TARGET(weft_channel_sums, weft::channel_sums, ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Floats>().Ret<Floats>());
TARGET(weft_batch_norm, weft::batch_norm, (weft::with<4, 4>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>())));
TARGET(weft_batch_norm_backward, weft::batch_norm_backward,
       (weft::with<5, 3>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>())));
TARGET(weft_attention, weft::attention, weft::bind_attention().Ret<Floats>().Ret<Floats>());
TARGET(weft_attention_backward, weft::attention_backward, (weft::with<3, 3>(weft::bind_attention())));
TARGET(weft_layer_norm, weft::layer_norm, (weft::with<4, 3>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>())));
TARGET(weft_layer_norm_backward, weft::layer_norm_backward,
       (weft::with<5, 3>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>())));
TARGET(weft_cross_entropy, weft::cross_entropy,
       ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Floats>().Arg<Integers>().Ret<Floats>().Ret<Floats>());
TARGET(weft_cross_entropy_backward, weft::cross_entropy_backward,
       ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Floats>().Arg<Floats>().Arg<Integers>().Arg<Floats>().Ret<Floats>());
#define EXTREMES(suffix, T) \
  TARGET(weft_extremes_##suffix, weft::extremes<T>, weft::bind_extremes().Arg<ffi::Buffer<T>>().Ret<ffi::Buffer<T>>())
EXTREMES(f32, ffi::F32);
EXTREMES(f64, ffi::F64);
EXTREMES(f16, ffi::F16);
EXTREMES(bf16, ffi::BF16);
TARGET(weft_lstm, weft::lstm, (weft::with<4, 5>(weft::bind_recurrent().Arg<Integers>())));
TARGET(weft_lstm_backward, weft::lstm_backward, (weft::with<7, 3>(weft::bind_recurrent().Arg<Integers>())));
TARGET(weft_gru, weft::gru, (weft::with<4, 4>(weft::bind_recurrent().Arg<Integers>())));
TARGET(weft_gru_backward, weft::gru_backward, (weft::with<6, 3>(weft::bind_recurrent().Arg<Integers>())));
TARGET(weft_rnn, weft::rnn, (weft::with<3, 2>(weft::bind_recurrent().Attr<bool>("relu").Arg<Integers>())));
TARGET(weft_rnn_backward, weft::rnn_backward,
       (weft::with<4, 2>(weft::bind_recurrent().Attr<bool>("relu").Arg<Integers>())));
TARGET(weft_sgd_step, weft::sgd_step,
       weft::bind_step().Attr<bool>("nesterov").Arg<Floats>().RemainingArgs().RemainingRets());
TARGET(weft_adam_step, weft::adam_step,
       weft::bind_step().Attr<bool>("decoupled").Arg<Floats>().RemainingArgs().RemainingRets());

EXPORT int weft_native_version() { return weft::kVersion; }
EXPORT int weft_native_ffi_major() { return XLA_FFI_API_MAJOR; }
EXPORT int weft_native_ffi_minor() { return XLA_FFI_API_MINOR; }
// 0 where the CPU has no AVX2, 2 for AVX2, 512 for AVX-512.
EXPORT int weft_native_variant() { return weft::variant(); }
// For bfloat16: 0 for nothing, 1 for AVX-512, 2 for AMX.
EXPORT int weft_native_bf16() { return weft::bf16_variant(); }
