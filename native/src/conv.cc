// 2-D convolutions, channels-last: sums over taps of the kernel, without an array of patches. A tile of the result stays
// in registers over all taps, since each of its pixels has its own address in the image. What lies outside of the image
// is copied as zeros around it, into cache.
#include "vec.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int kTile = 8;               // pixels of a tile
constexpr int64_t kPixels = 64;        // pixels that a strip of the weight is read for
constexpr double kTask = 4e6;          // operations of a task, about
constexpr int64_t kMostTaps = 1024;    // more are refused by the caller
constexpr int64_t kSmallWeight = 65536;  // elements; of these, parts of the batch have gradients of their own
constexpr int64_t kParts = 8;          // a fixed number: the order of sums does not depend on threads
constexpr int64_t kBandBytes = 24 << 10;  // of image and gradient, which the weight's gradient goes through for each tile

// An image's rows in memory with zeros around: (rows, cols) from row `top`, column `left` of the image on.
void padded(const float* image, int64_t h, int64_t w, int64_t c, int64_t top, int64_t left, int64_t rows,
            int64_t cols, float* to) {
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

// A sum over taps: out(pixel) = sum over t of in[pixel + offset[t] ...] (run) times weight (taps * run, n).
struct Taps {
  int64_t count, run;
  int64_t offset[kMostTaps];
  int64_t n;            // channels of the result
  const float* weight;  // in strips of columns, each contiguous
};

template <int VECTORS, bool PART>
void tiles(const Taps& taps, const float* in, int64_t in_row, int64_t in_col, float* out, int64_t out_row,
           int64_t out_col, int64_t cols, int64_t begin, int64_t end, const float* weight, int64_t width) {
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
    UNROLL for (int i = 0; i < kTile; i++) {
      UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] = VecF{};
    }
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

// All pixels (rows, cols) of the result, from an image whose pixels (0, 0) meet.
void sum_taps(const Taps& taps, const float* in, int64_t in_row, int64_t in_col, float* out, int64_t out_row,
              int64_t out_col, int64_t rows, int64_t cols) {
  for (int64_t begin = 0; begin < rows * cols; begin += kPixels) {
    const int64_t end = least(rows * cols, begin + kPixels);
    for (int64_t j = 0, w; j < taps.n; j += w) {
      w = strip_width<float>(taps.n - j);
      const float* b = taps.weight + taps.count * taps.run * j;
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

// Rows of the result for a task: images alone may be too few.
int64_t rows_of_task(int64_t rows, double operations_of_row) {
  const double fit = kTask / most(1.0, operations_of_row);
  return most<int64_t>(1, fit < static_cast<double>(rows) ? static_cast<int64_t>(fit) : rows);
}

}  // namespace

void conv(const Pool& pool, const Conv& s, const float* x, const float* weight, float* y) {
  const int64_t depth = s.kh * s.kw * s.c;
  if (!depth) return clear(y, s.n * s.oh * s.ow * s.o);
  const int64_t span = (s.kh - 1) * s.dilation_h + 1;  // rows that a kernel covers
  const int64_t cols = (s.ow - 1) * s.stride_w + (s.kw - 1) * s.dilation_w + 1;
  const bool as_is = s.top == 0 && s.left == 0 && cols <= s.w && (s.oh - 1) * s.stride_h + span <= s.h;
  const int64_t in_row = (as_is ? s.w : cols) * s.c;
  Taps taps;
  taps.n = s.o;
  set_offsets(straight(s.kh, s.dilation_h), straight(s.kw, s.dilation_w), in_row, s.c, taps);
  float* packed = scratch_of<float>(2, depth * s.o);
  for (int64_t j = 0, w; j < s.o; j += w) {
    w = strip_width<float>(s.o - j);
    for (int64_t p = 0; p < depth; p++) copy(packed + j * depth + p * w, weight + p * s.o + j, w);
  }
  taps.weight = packed;
  const int64_t rows = rows_of_task(s.oh, 2.0 * static_cast<double>(s.ow * s.o) * static_cast<double>(depth));
  const int64_t parts = ceil_div(s.oh, rows);
  parallel(pool, s.n * parts, [&](int64_t task) {
    const int64_t first = task % parts * rows, count = least(rows, s.oh - first), n = task / parts;
    const float* image = x + n * s.h * s.w * s.c;
    const float* in = image + first * s.stride_h * s.w * s.c;
    if (!as_is) {
      const int64_t high = (count - 1) * s.stride_h + span;
      float* copied = scratch_of<float>(0, high * in_row);
      padded(image, s.h, s.w, s.c, first * s.stride_h - s.top, -s.left, high, cols, copied);
      in = copied;
    }
    sum_taps(taps, in, s.stride_h * in_row, s.stride_w * s.c, y + ((n * s.oh) + first) * s.ow * s.o, s.ow * s.o, s.o,
             count, s.ow);
  });
}

namespace {

// Along one dim, what input pixels phase, phase + stride, ... take from the result's pixels: which taps, and from where,
// relative to the pixel's number among them.
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
    for (int64_t i = 0; i < line.count; i++)
      r.low = least(r.low, line.shift[i]), r.high = most(r.high, line.shift[i]);
  }
  return r;
}

}  // namespace

// With a stride, the pixels of the input fall into stride_h x stride_w phases, each of which has its own taps.
void conv_input_gradient(const Pool& pool, const Conv& s, const float* dy, const float* weight, float* dx) {
  const Range down = reach(s.kh, s.dilation_h, s.stride_h, s.top), along = reach(s.kw, s.dilation_w, s.stride_w, s.left);
  const int64_t phases = s.stride_h * s.stride_w, depth = s.kh * s.kw * s.o;
  if (!depth || !s.oh || !s.ow) return clear(dx, s.n * s.h * s.w * s.c);
  const int64_t high = ceil_div(s.h, s.stride_h), wide = ceil_div(s.w, s.stride_w);
  const int64_t cols = wide + along.high - along.low, in_row = cols * s.o;
  Taps* all = scratch_of<Taps>(3, phases);
  float* packed = scratch_of<float>(2, depth * s.c);
  int64_t used = 0;
  for (int64_t f = 0; f < phases; f++) {
    Taps& taps = all[f];
    Line rows = phase_of(s.kh, s.dilation_h, s.stride_h, s.top, f / s.stride_w);
    Line columns = phase_of(s.kw, s.dilation_w, s.stride_w, s.left, f % s.stride_w);
    for (int64_t i = 0; i < rows.count; i++) rows.shift[i] -= down.low;
    for (int64_t i = 0; i < columns.count; i++) columns.shift[i] -= along.low;
    taps.n = s.c;
    taps.weight = packed + used;
    set_offsets(rows, columns, in_row, s.o, taps);
    const int64_t k = rows.count * columns.count * s.o;
    for (int64_t j = 0, w; j < s.c; j += w) {
      w = strip_width<float>(s.c - j);
      float* to = packed + used + j * k;
      for (int64_t p = 0; p < rows.count; p++)
        for (int64_t q = 0; q < columns.count; q++, to += s.o * w)
          transpose(w, s.o, weight + ((rows.kernel[p] * s.kw + columns.kernel[q]) * s.c + j) * s.o, s.o, to, w);
    }
    used += k * s.c;
  }
  const int64_t rows =
      rows_of_task(high, 2.0 * static_cast<double>(s.w * s.c) * static_cast<double>(depth));
  const int64_t parts = ceil_div(high, rows);
  parallel(pool, s.n * parts, [&](int64_t task) {
    const int64_t first = task % parts * rows, count = least(rows, high - first), n = task / parts;
    const int64_t tall = count + down.high - down.low;
    float* in = scratch_of<float>(0, tall * in_row);
    padded(dy + n * s.oh * s.ow * s.o, s.oh, s.ow, s.o, first + down.low, along.low, tall, cols, in);
    for (int64_t f = 0; f < phases; f++) {
      const int64_t y = first * s.stride_h + f / s.stride_w, x = f % s.stride_w;
      const int64_t down_to = least(s.h, (first + count) * s.stride_h);
      if (y >= down_to || x >= s.w) continue;
      sum_taps(all[f], in, in_row, s.o, dx + ((n * s.h + y) * s.w + x) * s.c, s.stride_h * s.w * s.c,
               s.stride_w * s.c, ceil_div(down_to - y, s.stride_h), ceil_div(s.w - x, s.stride_w));
    }
  });
}

namespace {

// dw (m, width) += sum over rows of the result and their pixels: `in` at the first of m contiguous elements of the image
template <int VECTORS, bool PART>
void gradient_tiles(int64_t m, const float* in, int64_t in_row, int64_t in_col, const float* dy, int64_t rows,
                    int64_t cols, int64_t n, float* dw, Mask mask) {
  for (int64_t i = 0; i < m; i += kTile) {
    const int64_t count = least<int64_t>(kTile, m - i);
    Vec<float> acc[kTile][VECTORS];
    UNROLL for (int r = 0; r < kTile; r++) {
      UNROLL for (int j = 0; j < VECTORS; j++) acc[r][j] =
          r < count ? load<PART>(dw + (i + r) * n + j * kLanesF, mask) : VecF{};
    }
    for (int64_t y = 0; y < rows; y++) {
      const float* from[kTile];
      UNROLL for (int r = 0; r < kTile; r++) from[r] = in + y * in_row + i + (r < count ? r : 0);
      multiply<float, kTile, VECTORS, PART>(acc, cols, from, in_col, dy + y * cols * n, n, mask);
    }
    UNROLL for (int r = 0; r < kTile; r++) {
      if (r < count) {
        UNROLL for (int j = 0; j < VECTORS; j++) store<PART>(dw + (i + r) * n + j * kLanesF, acc[r][j], mask);
      }
    }
  }
}

// What one image adds to the gradient of one row of the kernel, for the result's channels [begin, end); `in` is the
// image with zeros around.
void add_gradient(const Conv& s, int64_t kernel_row, int64_t begin, int64_t end, const float* in, int64_t in_row,
                  const float* dy, float* dw) {
  const bool contiguous = s.dilation_w == 1 || s.kw == 1;
  const int64_t m = contiguous ? s.kw * s.c : s.c, runs = contiguous ? 1 : s.kw;
  const int64_t row_bytes = 4 * (s.ow * s.o + s.stride_h * in_row);
  const int64_t band = most<int64_t>(1, kBandBytes / most<int64_t>(1, row_bytes));
  for (int64_t first = 0; first < s.oh; first += band) {
    const int64_t rows = least(band, s.oh - first);
    const float* g = dy + first * s.ow * s.o;
    for (int64_t t = 0; t < runs; t++) {
      const float* from = in + (first * s.stride_h + kernel_row * s.dilation_h) * in_row + t * s.dilation_w * s.c;
      float* to = dw + (kernel_row * s.kw + t) * s.c * s.o;
      for (int64_t j = begin, w; j < end; j += w) {
        w = strip_width<float>(end - j);
        const Mask mask(w % kLanesF);
        const auto go = [&](auto f) {
          f(m, from, s.stride_h * in_row, s.stride_w * s.c, g + j, rows, s.ow, s.o, to + j, mask);
        };
        if (w < kLanesF)
          go(gradient_tiles<1, true>);
        else if (w == kLanesF)
          go(gradient_tiles<1, false>);
        else if (w == 2 * kLanesF)
          go(gradient_tiles<2, false>);
        else
          go(gradient_tiles<kMostVectors, false>);
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
        for (int64_t r = 0; r < s.kh; r++) add_gradient(s, r, 0, s.o, in, in_row, dy + n * image, own);
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
  // A task is one row of the kernel and, of a result of many channels, some of them: a whole number of strips.
  const int64_t strip = kMostVectors * kLanesF, groups = least<int64_t>(4, ceil_div(s.o, strip));
  const int64_t width = ceil_div(ceil_div(s.o, groups), strip) * strip, across = ceil_div(s.o, width);
  parallel(pool, s.kh * across, [&](int64_t task) {
    const int64_t row = task / across, first = task % across * width;
    for (int64_t n = 0; n < s.n; n++)
      add_gradient(s, row, first, least(s.o, first + width), images + n * tall * in_row, in_row, dy + n * image, dw);
  });
}

}  // namespace weft::WEFT_VARIANT
