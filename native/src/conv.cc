// 2-D convolutions, channels-last: sums over taps of the kernel, without an array of patches. A tile of the result
// stays in registers over all taps, since each of its pixels has its own address in the image. What lies outside of the
// image is copied as zeros around it, into cache.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kPixels = 64;          // pixels that a strip of the weight is read for
constexpr double kTask = 4e6;            // operations of a task, about
constexpr int64_t kMostTaps = 1024;      // more are refused by the caller
constexpr int64_t kSmallWeight = 65536;  // elements: a quarter of the second-level cache, and read again for each image
constexpr int64_t kParts = 8;            // a fixed number: the order of sums does not depend on threads
constexpr int64_t kBandBytes =
    24 << 10;  // of image and gradient, which the weight's gradient goes through for each tile

// Pixels of a tile: with one vector each, fewer could not hide how long an addition takes.
constexpr int tile_of(int vectors) { return vectors == 1 ? 12 : rows_for(vectors); }

// An image's rows in memory with zeros around: (rows, cols) from row `top`, column `left` of the image on.
void padded(const float* image, int64_t h, int64_t w, int64_t c, int64_t top, int64_t left, int64_t rows, int64_t cols,
            float* to) {
  const int64_t first = most<int64_t>(0, -left), last = least(cols, w - left);  // columns within the image
  for (int64_t r = 0; r < rows; r++, to += cols * c) {
    const int64_t row = top + r;
    if (row < 0 || row >= h || first >= last) {
      clear(to, cols * c);
      continue;
    }
    clear(to, first * c);
    copy(to + first * c, image + (row * w + left + first) * c, (last - first) * c);
    clear(to + last * c, (cols - last) * c);
  }
}

// A sum over taps: out(pixel) = sum over t of in[pixel + offset[t] ...] (run) times weight (taps * run, channels).
struct Taps {
  int64_t count, run;
  int64_t offset[kMostTaps];
};

template <int VECTORS, bool PART>
void tiles(const Taps& taps, const float* in, int64_t in_row, int64_t in_col, float* out, int64_t out_row,
           int64_t out_col, int64_t cols, int64_t begin, int64_t end, const float* weight, int64_t width) {
  constexpr int kTile = tile_of(VECTORS);
  const Mask mask(width % kLanesF);
  int64_t y = begin / cols, x = begin % cols;
  for (int64_t at = begin; at < end; at += kTile) {
    const int64_t count = least<int64_t>(kTile, end - at);
    const float* from[kTile];
    float* to[kTile];
    for (int64_t i = 0; i < kTile; i++) {
      from[i] = i < count ? in + y * in_row + x * in_col : from[0];
      to[i] = i < count ? out + y * out_row + x * out_col : nullptr;
      if (i < count && ++x == cols) x = 0, y++;
    }
    Vec<float> acc[kTile][VECTORS];
    UNROLL for (int i = 0; i < kTile; i++) { UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] = VecF{}; }
    const float* b = weight;
    for (int64_t t = 0; t < taps.count; t++, b += taps.run * width) {
      const float* rows[kTile];
      UNROLL for (int i = 0; i < kTile; i++) rows[i] = from[i] + taps.offset[t];
      multiply<float, kTile, VECTORS, PART>(acc, taps.run, rows, 1, b, width, mask);
    }
    UNROLL for (int i = 0; i < kTile; i++) {
      if (i < count) {
        UNROLL for (int j = 0; j < VECTORS; j++) store<PART>(to[i] + j * kLanesF, acc[i][j], mask);
      }
    }
  }
}

// All pixels (rows, cols) and n channels of the result, from an image whose pixels (0, 0) meet. The weight is in strips
// of columns, each contiguous.
void sum_taps(const Taps& taps, const float* weight, int64_t n, const float* in, int64_t in_row, int64_t in_col,
              float* out, int64_t out_row, int64_t out_col, int64_t rows, int64_t cols) {
  for (int64_t begin = 0; begin < rows * cols; begin += kPixels) {
    const int64_t end = least(rows * cols, begin + kPixels);
    for (int64_t j = 0, w; j < n; j += w) {
      w = strip_width<float>(n - j);
      const float* b = weight + taps.count * taps.run * j;
      const auto go = [&](auto f) { f(taps, in, in_row, in_col, out + j, out_row, out_col, cols, begin, end, b, w); };
      if (w < kLanesF)
        go(tiles<1, true>);
      else if (w == kLanesF)
        go(tiles<1, false>);
      else if (w == 2 * kLanesF)
        go(tiles<2, false>);
      else
        go(tiles<kMostVectors, false>);
    }
  }
}

// Where rows or columns of the kernel read, along one dim: tap kernel[i] reads at shift[i], ascending.
struct Line {
  int64_t count = 0;
  int64_t kernel[kMostTaps], shift[kMostTaps];
};

// The taps of a line of the kernel's rows and one of its columns; neighbours that are contiguous in memory are one.
void set_offsets(const Line& down, const Line& along, int64_t in_row, int64_t c, Taps& taps) {
  bool contiguous = true;
  for (int64_t i = 1; i < along.count; i++) contiguous = contiguous && along.shift[i] == along.shift[i - 1] + 1;
  const int64_t each = contiguous ? least<int64_t>(1, along.count) : along.count;
  taps.run = contiguous ? along.count * c : c;
  taps.count = 0;
  for (int64_t i = 0; i < down.count; i++)
    for (int64_t j = 0; j < each; j++) taps.offset[taps.count++] = down.shift[i] * in_row + along.shift[j] * c;
}

Line straight(int64_t kernel, int64_t dilation) {
  Line line;
  for (int64_t i = 0; i < kernel; i++) line.kernel[line.count] = i, line.shift[line.count++] = i * dilation;
  return line;
}

// f(first channel, channels) for each strip of n channels
template <class F>
void for_strips(const Pool& pool, int64_t n, const F& f) {
  constexpr int64_t wide = kMostVectors * kLanesF;
  parallel(pool, ceil_div(n, wide), [&](int64_t task) {
    for (int64_t j = task * wide, w; j < least(n, (task + 1) * wide); j += w) {
      w = strip_width<float>(least(n, (task + 1) * wide) - j);
      f(j, w);
    }
  });
}

// Rows of the result for a task: images alone may be too few.
int64_t rows_of_task(int64_t rows, double operations_of_row) {
  const double fit = kTask / most(1.0, operations_of_row);
  return most<int64_t>(1, fit < static_cast<double>(rows) ? static_cast<int64_t>(fit) : rows);
}

}  // namespace

void conv(const Pool& pool, const Conv& s, const float* x, const float* weight, float* y) {
  const int64_t depth = s.kh * s.kw * s.c;
  if (!depth) return clear(y, s.n * s.oh * s.ow * s.o);
  if (!s.n || !s.o || !s.oh || !s.ow) return;
  const int64_t span = (s.kh - 1) * s.dilation_h + 1;  // rows that a kernel covers
  const int64_t tall = (s.oh - 1) * s.stride_h + span;
  const int64_t cols = (s.ow - 1) * s.stride_w + (s.kw - 1) * s.dilation_w + 1;
  const bool as_is = s.top == 0 && s.left == 0 && cols <= s.w && tall <= s.h;
  const int64_t in_row = (as_is ? s.w : cols) * s.c;
  Taps taps;
  set_offsets(straight(s.kh, s.dilation_h), straight(s.kw, s.dilation_w), in_row, s.c, taps);
  const auto pack = [&](int64_t j, int64_t w, float* to) {
    for (int64_t p = 0; p < depth; p++) copy(to + p * w, weight + p * s.o + j, w);
  };
  const auto image = [&](int64_t n) { return x + n * s.h * s.w * s.c; };
  if (depth * s.o > kSmallWeight && s.n * tall * in_row <= depth * s.o) {  // a strip of the weight meets all images
    float* copied = as_is ? nullptr : scratch_of<float>(3, s.n * tall * in_row);
    if (!as_is)
      parallel(pool, s.n, [&](int64_t n) {
        padded(image(n), s.h, s.w, s.c, -s.top, -s.left, tall, cols, copied + n * tall * in_row);
      });
    for_strips(pool, s.o, [&](int64_t j, int64_t w) {
      float* strip = scratch_of<float>(2, depth * w);
      pack(j, w, strip);
      for (int64_t n = 0; n < s.n; n++)
        sum_taps(taps, strip, w, as_is ? image(n) : copied + n * tall * in_row, s.stride_h * in_row, s.stride_w * s.c,
                 y + n * s.oh * s.ow * s.o + j, s.ow * s.o, s.o, s.oh, s.ow);
    });
    return;
  }
  float* packed = scratch_of<float>(2, depth * s.o);
  for (int64_t j = 0, w; j < s.o; j += w) {
    w = strip_width<float>(s.o - j);
    pack(j, w, packed + j * depth);
  }
  const int64_t rows = rows_of_task(s.oh, 2.0 * static_cast<double>(s.ow * s.o) * static_cast<double>(depth));
  const int64_t parts = ceil_div(s.oh, rows);
  parallel(pool, s.n * parts, [&](int64_t task) {
    const int64_t first = task % parts * rows, count = least(rows, s.oh - first), n = task / parts;
    const float* in = image(n) + first * s.stride_h * s.w * s.c;
    if (!as_is) {
      const int64_t high = (count - 1) * s.stride_h + span;
      float* copied = scratch_of<float>(0, high * in_row);
      padded(image(n), s.h, s.w, s.c, first * s.stride_h - s.top, -s.left, high, cols, copied);
      in = copied;
    }
    sum_taps(taps, packed, s.o, in, s.stride_h * in_row, s.stride_w * s.c, y + (n * s.oh + first) * s.ow * s.o,
             s.ow * s.o, s.o, count, s.ow);
  });
}

namespace {

// Along one dim, what input pixels phase, phase + stride, ... take from the result's pixels: which taps, and from
// where, relative to the pixel's number among them.
Line phase_of(int64_t kernel, int64_t dilation, int64_t stride, int64_t start, int64_t phase) {
  Line line;
  for (int64_t i = kernel - 1; i >= 0; i--) {
    const int64_t at = phase + start - i * dilation;
    if (at % stride == 0) line.kernel[line.count] = i, line.shift[line.count++] = at / stride;
  }
  return line;
}

struct Range {
  int64_t low = 0, high = 0;
};
// The pixels of the result that some phase reads, beyond its own number, along one dim.
Range reach(int64_t kernel, int64_t dilation, int64_t stride, int64_t start) {
  Range r;
  for (int64_t phase = 0; phase < stride; phase++) {
    const Line line = phase_of(kernel, dilation, stride, start, phase);
    for (int64_t i = 0; i < line.count; i++) r.low = least(r.low, line.shift[i]), r.high = most(r.high, line.shift[i]);
  }
  return r;
}

}  // namespace

// With a stride, the pixels of the input fall into stride_h x stride_w phases, each of which has its own taps.
void conv_input_gradient(const Pool& pool, const Conv& s, const float* dy, const float* weight, float* dx) {
  const int64_t phases = s.stride_h * s.stride_w, depth = s.kh * s.kw * s.o;
  if (!depth || !s.oh || !s.ow) return clear(dx, s.n * s.h * s.w * s.c);
  if (!s.n || !s.h || !s.w || !s.c) return;
  const Range down = reach(s.kh, s.dilation_h, s.stride_h, s.top),
              along = reach(s.kw, s.dilation_w, s.stride_w, s.left);
  const int64_t high = ceil_div(s.h, s.stride_h), wide = ceil_div(s.w, s.stride_w);
  const int64_t cols = wide + along.high - along.low, in_row = cols * s.o, tall = high + down.high - down.low;
  struct Phase {
    Line rows, columns;
    Taps taps;
    int64_t before;  // rows of the packed weight
  };
  auto* all = scratch_of<Phase>(3, phases);
  int64_t used = 0;
  for (int64_t f = 0; f < phases; f++) {
    Phase& phase = all[f];
    phase.rows = phase_of(s.kh, s.dilation_h, s.stride_h, s.top, f / s.stride_w);
    phase.columns = phase_of(s.kw, s.dilation_w, s.stride_w, s.left, f % s.stride_w);
    for (int64_t i = 0; i < phase.rows.count; i++) phase.rows.shift[i] -= down.low;
    for (int64_t i = 0; i < phase.columns.count; i++) phase.columns.shift[i] -= along.low;
    set_offsets(phase.rows, phase.columns, in_row, s.o, phase.taps);
    phase.before = used;
    used += phase.rows.count * phase.columns.count * s.o;
  }
  // The weight for w channels from j on, transposed: (taps, o, w).
  const auto pack = [&](const Phase& phase, int64_t j, int64_t w, float* to) {
    for (int64_t p = 0; p < phase.rows.count; p++)
      for (int64_t q = 0; q < phase.columns.count; q++, to += s.o * w)
        transpose(w, s.o, weight + ((phase.rows.kernel[p] * s.kw + phase.columns.kernel[q]) * s.c + j) * s.o, s.o, to,
                  w);
  };
  // Channels [j, j + w) of the input's rows from first * stride on, count of each phase; `strip` is where they start.
  const auto phase_sum = [&](int64_t f, const float* strip, int64_t j, int64_t w, const float* in, int64_t n,
                             int64_t first, int64_t count) {
    const int64_t y = first * s.stride_h + f / s.stride_w, x = f % s.stride_w;
    const int64_t end = least(s.h, (first + count) * s.stride_h);
    if (y < end && x < s.w)
      sum_taps(all[f].taps, strip, w, in, in_row, s.o, dx + ((n * s.h + y) * s.w + x) * s.c + j, s.stride_h * s.w * s.c,
               s.stride_w * s.c, ceil_div(end - y, s.stride_h), ceil_div(s.w - x, s.stride_w));
  };
  const auto pad = [&](int64_t n, int64_t first, int64_t rows, float* to) {
    padded(dy + n * s.oh * s.ow * s.o, s.oh, s.ow, s.o, first + down.low, along.low, rows, cols, to);
  };
  if (depth * s.c > kSmallWeight && s.n * tall * in_row <= depth * s.c) {  // as in `conv`
    float* copied = scratch_of<float>(4, s.n * tall * in_row);
    parallel(pool, s.n, [&](int64_t n) { pad(n, 0, tall, copied + n * tall * in_row); });
    for_strips(pool, s.c, [&](int64_t j, int64_t w) {
      for (int64_t f = 0; f < phases; f++) {
        float* strip = scratch_of<float>(2, depth * w);
        pack(all[f], j, w, strip);
        for (int64_t n = 0; n < s.n; n++) phase_sum(f, strip, j, w, copied + n * tall * in_row, n, 0, high);
      }
    });
    return;
  }
  float* packed = scratch_of<float>(2, depth * s.c);
  for (int64_t f = 0; f < phases; f++) {
    const int64_t k = all[f].rows.count * all[f].columns.count * s.o;
    for (int64_t j = 0, w; j < s.c; j += w) {
      w = strip_width<float>(s.c - j);
      pack(all[f], j, w, packed + all[f].before * s.c + j * k);
    }
  }
  const int64_t rows = rows_of_task(high, 2.0 * static_cast<double>(s.w * s.c) * static_cast<double>(depth));
  const int64_t parts = ceil_div(high, rows);
  parallel(pool, s.n * parts, [&](int64_t task) {
    const int64_t first = task % parts * rows, count = least(rows, high - first), n = task / parts;
    const int64_t reached = count + down.high - down.low;
    float* in = scratch_of<float>(0, reached * in_row);
    pad(n, first, reached, in);
    for (int64_t f = 0; f < phases; f++) phase_sum(f, packed + all[f].before * s.c, 0, s.c, in, n, first, count);
  });
}

namespace {

// Images and their gradients of the result, of which a part of the rows is summed over.
struct Pixels {
  int64_t images, in_image, in_row, in_col;  // of the image with zeros around
  int64_t dy_image, rows, cols, n;           // of the gradient
};

// dw (m, width) += sum over pixels; `in` is at the first of m contiguous elements of the image
template <int VECTORS, bool PART>
void gradient_tiles(const Pixels& s, int64_t m, const float* in, const float* dy, float* dw, Mask mask) {
  constexpr int kTile = tile_of(VECTORS);
  for (int64_t i = 0; i < m; i += kTile) {
    const int64_t count = least<int64_t>(kTile, m - i);
    Vec<float> acc[kTile][VECTORS];
    UNROLL for (int r = 0; r < kTile; r++) {
      UNROLL for (int j = 0; j < VECTORS; j++) acc[r][j] =
          r < count ? load<PART>(dw + (i + r) * s.n + j * kLanesF, mask) : VecF{};
    }
    for (int64_t n = 0; n < s.images; n++)
      for (int64_t y = 0; y < s.rows; y++) {
        const float* from[kTile];
        UNROLL for (int r = 0; r < kTile; r++) from[r] = in + n * s.in_image + y * s.in_row + i + (r < count ? r : 0);
        multiply<float, kTile, VECTORS, PART>(acc, s.cols, from, s.in_col, dy + n * s.dy_image + y * s.cols * s.n, s.n,
                                              mask);
      }
    UNROLL for (int r = 0; r < kTile; r++) {
      if (r < count) {
        UNROLL for (int j = 0; j < VECTORS; j++) store<PART>(dw + (i + r) * s.n + j * kLanesF, acc[r][j], mask);
      }
    }
  }
}

// What images add to the gradient of one row of the kernel, for the result's channels [begin, end); `in` are the images
// with zeros around. One image goes in bands of rows, so that a band stays in cache for all tiles.
void add_gradient(const Conv& s, int64_t kernel_row, int64_t begin, int64_t end, int64_t images, const float* in,
                  int64_t in_image, int64_t in_row, const float* dy, float* dw) {
  const bool contiguous = s.dilation_w == 1 || s.kw == 1;
  const int64_t m = contiguous ? s.kw * s.c : s.c, runs = contiguous ? 1 : s.kw;
  const int64_t row_bytes = 4 * (s.ow * s.o + s.stride_h * in_row);
  const int64_t band = images > 1 ? s.oh : most<int64_t>(1, kBandBytes / most<int64_t>(1, row_bytes));
  for (int64_t first = 0; first < s.oh; first += band) {
    const Pixels pixels{
        images, in_image, s.stride_h * in_row, s.stride_w * s.c, s.oh * s.ow * s.o, least(band, s.oh - first),
        s.ow,   s.o};
    for (int64_t t = 0; t < runs; t++) {
      const float* from = in + (first * s.stride_h + kernel_row * s.dilation_h) * in_row + t * s.dilation_w * s.c;
      for (int64_t j = begin, w; j < end; j += w) {
        w = strip_width<float>(end - j);
        const Mask mask(w % kLanesF);
        const float* g = dy + first * s.ow * s.o + j;
        float* to = dw + (kernel_row * s.kw + t) * s.c * s.o + j;
        if (w < kLanesF)
          gradient_tiles<1, true>(pixels, m, from, g, to, mask);
        else if (w == kLanesF)
          gradient_tiles<1, false>(pixels, m, from, g, to, mask);
        else if (w == 2 * kLanesF)
          gradient_tiles<2, false>(pixels, m, from, g, to, mask);
        else
          gradient_tiles<kMostVectors, false>(pixels, m, from, g, to, mask);
      }
    }
  }
}

}  // namespace

// A small weight's gradient is summed over parts of the batch, each a task; a large one's is shared out by its rows.
void conv_weight_gradient(const Pool& pool, const Conv& s, const float* x, const float* dy, float* dw) {
  const int64_t size = s.kh * s.kw * s.c * s.o;
  const int64_t tall = (s.oh - 1) * s.stride_h + (s.kh - 1) * s.dilation_h + 1;
  const int64_t cols = (s.ow - 1) * s.stride_w + (s.kw - 1) * s.dilation_w + 1, in_row = cols * s.c;
  if (!size) return;
  if (!s.oh || !s.ow || !s.n) return clear(dw, size);
  const auto pad = [&](int64_t n, float* to) {
    padded(x + n * s.h * s.w * s.c, s.h, s.w, s.c, -s.top, -s.left, tall, cols, to);
  };
  const int64_t image = s.oh * s.ow * s.o;
  if (size <= kSmallWeight) {
    const int64_t parts = least(kParts, s.n);
    float* sums = scratch_of<float>(2, parts * size);
    parallel(pool, parts, [&](int64_t part) {
      float *own = sums + part * size, *in = scratch_of<float>(0, tall * in_row);
      clear(own, size);
      for (int64_t n = part * s.n / parts; n < (part + 1) * s.n / parts; n++) {
        pad(n, in);
        for (int64_t r = 0; r < s.kh; r++) add_gradient(s, r, 0, s.o, 1, in, 0, in_row, dy + n * image, own);
      }
    });
    for (int64_t i = 0; i < size; i++) {
      float total = sums[i];
      for (int64_t part = 1; part < parts; part++) total += sums[part * size + i];
      dw[i] = total;
    }
    return;
  }
  float* images = scratch_of<float>(2, s.n * tall * in_row);
  parallel(pool, s.n, [&](int64_t n) { pad(n, images + n * tall * in_row); });
  clear(dw, size);
  // The sum over all images of a tile stays in registers where images are small.
  const bool small = s.n * (tall * in_row + image) <= size;
  const int64_t together = small ? s.n : 1;
  parallel(pool, s.kh * ceil_div(s.o, kMostVectors * kLanesF), [&](int64_t task) {
    const int64_t row = task % s.kh, first = task / s.kh * kMostVectors * kLanesF;
    for (int64_t n = 0; n < s.n; n += together)
      add_gradient(s, row, first, least(s.o, first + kMostVectors * kLanesF), together, images + n * tall * in_row,
                   tall * in_row, in_row, dy + n * image, dw);
  });
}

}  // namespace weft::WEFT_VARIANT
