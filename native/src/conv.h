// What the kernels of convolutions share. In memory channels come first; a task copies what it reads into its own cache
// with channels last and zeros around, where each pixel has an address from which a micro-kernel reads along channels.
#pragma once
#include "vec.h"

namespace weft::WEFT_VARIANT {

constexpr int64_t kMostTaps = 1024;   // of a kernel's plane; more are refused by the caller
constexpr int64_t kMostPixels = 512;  // of a block

// --- moving ---------------------------------------------------------------------------------------------------

template <size_t... I>
INLINE VecF every_second(const float* p, std::index_sequence<I...>) {
  constexpr int L = sizeof...(I);  // nothing after the last one is read
  return __builtin_shufflevector(load(p), load(p + L - 1), (int(I) < L / 2 ? 2 * int(I) : 2 * int(I) + 1)...);
}
// The first lanes of p, p + step, …
INLINE VecF load_apart(const float* p, int64_t step, int64_t lanes) {
  if (step == 1) return load_part(p, Mask(lanes));
  if (step == 2 && lanes == kLanesF) return every_second(p, std::make_index_sequence<kLanesF>{});
  float values[kLanesF] = {};
  for (int64_t i = 0; i < lanes; i++) values[i] = p[i * step];
  return load(values);
}

// to(j)[i] = from(i)[j * step] for i < rows and j < cols: a transposition whose rows lie anywhere
template <class From, class To>
INLINE void transpose_square(int64_t rows, int64_t cols, int64_t step, const From& from, const To& to) {
  constexpr int L = kLanesF;
  VecF r[L];
  UNROLL for (int t = 0; t < L; t++) r[t] = t >= rows                ? VecF{}
                                            : cols == L && step == 1 ? load(from(t))
                                                                     : load_apart(from(t), step, cols);
  turn<float>(r, std::make_index_sequence<L>{});
  UNROLL for (int t = 0; t < L; t++) {
    if (t < cols && rows == L)
      store(to(t), r[t]);
    else if (t < cols)
      store_part(to(t), r[t], Mask(rows));
  }
}
// The same for any sizes. By rows of squares: reads go ahead in few streams, and writes are near to each other.
template <class From, class To>
void transpose_rows(int64_t rows, int64_t cols, int64_t step, const From& from, const To& to) {
  constexpr int64_t L = kLanesF;
  for (int64_t i = 0; i < rows; i += L) {
    const float* source[L];
    for (int64_t t = 0; t < L; t++) source[t] = i + t < rows ? from(i + t) : nullptr;
    for (int64_t j = 0; j < cols; j += L)
      transpose_square(
          least(L, rows - i), least(L, cols - j), step, [&](int64_t t) { return source[t] + j * step; },
          [&](int64_t t) { return to(j + t) + i; });
  }
}
// By columns of squares: writes go ahead in few streams, and reads are near to each other.
template <class From, class To>
void transpose_cols(int64_t rows, int64_t cols, const From& from, const To& to) {
  constexpr int64_t L = kLanesF;
  for (int64_t j = 0; j < cols; j += L) {
    float* target[L];
    for (int64_t t = 0; t < L; t++) target[t] = j + t < cols ? to(j + t) : nullptr;
    for (int64_t i = 0; i < rows; i += L)
      transpose_square(
          least(L, rows - i), least(L, cols - j), 1, [&](int64_t t) { return from(i + t) + j; },
          [&](int64_t t) { return target[t] + i; });
  }
}

// --- geometry -------------------------------------------------------------------------------------------------

// One dim of what is read and of the result. The result goes in cells of `phases` pixels; from one cell to the next,
// `pitch` positions are gone ahead, of `step` elements each. Position 0 is element `start`, and cells read up to
// `reach` positions ahead of their own.
struct Axis {
  int64_t in, out, cells, phases, pitch, step, start, reach;

  int64_t positions(int64_t cells_here) const { return (cells_here - 1) * pitch + reach + 1; }
};

// Blocks of cells: of several images, of several rows of one, or of a part of a row.
struct Cut {
  int64_t images, rows, cols;              // of a block, at most
  int64_t by_image, by_row, by_col;        // how many there are
  int64_t all_images, all_rows, all_cols;  // of what is cut

  Cut(int64_t images_, int64_t rows_, int64_t cols_, int64_t cells)
      : all_images(images_), all_rows(rows_), all_cols(cols_) {
    const auto parts = [](int64_t all, int64_t fit, int64_t& part, int64_t& count) {
      count = ceil_div(all, most<int64_t>(1, fit));
      part = ceil_div(all, count);
      count = ceil_div(all, part);
    };
    parts(all_cols, cells, cols, by_col);
    parts(all_rows, by_col > 1 ? 1 : cells / all_cols, rows, by_row);
    parts(all_images, by_col * by_row > 1 ? 1 : cells / (all_cols * all_rows), images, by_image);
  }
  int64_t count() const { return by_image * by_row * by_col; }
};

struct Block {
  int64_t image, images, row, rows, col, cols;

  Block(const Cut& cut, int64_t at) {
    col = at % cut.by_col * cut.cols, cols = least(cut.cols, cut.all_cols - col);
    row = at / cut.by_col % cut.by_row * cut.rows, rows = least(cut.rows, cut.all_rows - row);
    image = at / cut.by_col / cut.by_row * cut.images, images = least(cut.images, cut.all_images - image);
  }
};

// --- images ---------------------------------------------------------------------------------------------------

// (n, channels, depth, h, w) in memory. Image n * slices + z is what slice z of the result is summed over: `kernel`
// planes of each channel.
struct Stack {
  const float* p;
  int64_t channels, depth, h, w;
  Dim along;      // the kernel's way through the depth
  bool backward;  // whether the result is the gradient of what the kernel reads, and this that of what it writes

  int64_t slices() const { return backward ? along.in : along.out; }
  // The plane that tap k of the kernel reads for slice z; outside, it is none of the planes.
  int64_t plane(int64_t z, int64_t k) const {
    if (!backward) return z * along.stride + k * along.dilation - along.start;
    const int64_t at = z + along.start - k * along.dilation;
    return at % along.stride ? -1 : at / along.stride;
  }

  // to (rows, cols, count * kernel): these positions of an image, of the channels from `first` on; zeros outside.
  void copy_to(float* to, int64_t image, int64_t first, int64_t count, const Axis& down, int64_t row, int64_t rows,
               const Axis& across, int64_t col, int64_t cols) const {
    const int64_t n = image / slices(), z = image % slices(), all = count * along.kernel;
    auto** planes = scratch_of<const float*>(4, all);
    float* zeros = scratch_of<float>(5, w);
    bool missing = false;
    for (int64_t k = 0; k < along.kernel; k++) {
      const int64_t at = plane(z, k);
      const bool inside = 0 <= at && at < depth;
      missing = missing || !inside;
      for (int64_t i = 0; i < count; i++)
        planes[i * along.kernel + k] = inside ? p + ((n * channels + first + i) * depth + at) * h * w : nullptr;
    }
    if (missing) clear(zeros, w);
    const int64_t x = across.start + col * across.step, y = down.start + row * down.step;
    const int64_t begin = least(cols, x < 0 ? ceil_div(-x, across.step) : 0);
    const int64_t end = most(begin, least(cols, w > x ? ceil_div(w - x, across.step) : 0));
    for (int64_t r = 0; r < rows; r++, to += cols * all) {
      const int64_t line = y + r * down.step;
      if (line < 0 || line >= h || begin == end) {
        clear(to, cols * all);
        continue;
      }
      const int64_t at = line * w + x + begin * across.step;
      clear(to, begin * all);
      transpose_rows(
          all, end - begin, across.step, [&](int64_t i) { return planes[i] ? planes[i] + at : zeros; },
          [&](int64_t j) { return to + (begin + j) * all; });
      clear(to + end * all, (cols - end) * all);
    }
  }
};

// --- taps -----------------------------------------------------------------------------------------------------

// Where rows or columns of the kernel read, along one dim: tap kernel[i] reads at position shift[i], ascending.
struct Line {
  int64_t count = 0;
  int64_t kernel[kMostTaps], shift[kMostTaps];
};

inline Line straight(const Dim& s) {
  Line line;
  for (int64_t i = 0; i < s.kernel; i++) line.kernel[line.count] = i, line.shift[line.count++] = i * s.dilation;
  return line;
}

// The taps of a line of the kernel's rows and one of its columns, as offsets in what was copied. If `join`, neighbours
// that are contiguous there are one.
struct Taps {
  int64_t count, run;
  int64_t offset[kMostTaps];

  Taps(const Line& down, const Line& across, int64_t cols, int64_t channels, bool join) {
    bool contiguous = join;
    for (int64_t i = 1; i < across.count; i++) contiguous = contiguous && across.shift[i] == across.shift[i - 1] + 1;
    const int64_t each = contiguous ? least<int64_t>(1, across.count) : across.count;
    run = contiguous ? across.count * channels : channels;
    count = 0;
    for (int64_t i = 0; i < down.count; i++)
      for (int64_t j = 0; j < each; j++) offset[count++] = (down.shift[i] * cols + across.shift[j]) * channels;
  }
  int64_t depth() const { return count * run; }
};

inline Axis forward_axis(const Dim& s) {
  const bool alone = s.kernel == 1;  // then no more is copied than is read
  return {s.in, s.out, s.out, 1, alone ? 1 : s.stride, alone ? s.stride : 1, -s.start, (s.kernel - 1) * s.dilation};
}

// Depthwise: each channel is a group of its own, and vectors run over channels.
inline bool is_depthwise(const Conv& s) { return s.c == 1 && s.o == 1 && s.groups > 1 && s.d.kernel == 1; }

// A kernel of one element that leaves out nothing has no rows: all pixels are one.
inline Conv flattened(Conv s) {
  const auto is_plain = [](const Dim& d) { return d.kernel == 1 && d.stride == 1 && d.in == d.out && d.start == 0; };
  if (!is_plain(s.h) || !is_plain(s.w)) return s;
  const bool whole = is_plain(s.d);
  const int64_t size = s.h.in * s.w.in * (whole ? s.d.in : 1);
  if (whole) s.d = {1, 1, 1, 1, 1, 0};
  s.h = {1, 1, 1, 1, 1, 0};
  s.w = {size, 1, size, 1, 1, 0};
  return s;
}

}  // namespace weft::WEFT_VARIANT
