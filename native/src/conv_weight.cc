// Gradients of the weights of convolutions: sums over pixels. The result is cut into blocks, and where these are few,
// the pixels into parts, by sizes alone: so sums do not depend on the number of threads.
#include "conv.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kPixels = 128;   // that go at once: 128 x 48 floats of the gradient stay in the first-level cache
constexpr int64_t kChannels = 16;  // of the image, which go at once
constexpr int64_t kRows = 512;     // of a block of the result, about
constexpr int64_t kChunk = 192;    // columns of a block
constexpr int64_t kTasks = 12;     // at least, where each has kTask operations
constexpr double kTask = 1e6;
constexpr int64_t kReused = 3;  // blocks of channels, from which on the gradient is copied before them

constexpr int tile_of(int vectors) { return vectors == 1 ? 12 : rows_for(vectors); }

// Rows of pixels, each `cols` long: where they start in the copied image and in the gradient.
struct Lines {
  int64_t count = 0, cols, in_col;
  int64_t in[kPixels], pixel[kPixels];
};

// dw (m, width) += sum over pixels of in (m, pixels) times dy (pixels, width); `in` is at the first of m neighbours,
// and their rows of dw are at rows[i].
template <int VECTORS, bool PART>
void tiles(const Lines& lines, int64_t m, const float* in, const float* dy, int64_t width, float* dw,
           const int64_t* rows) {
  constexpr int kTile = tile_of(VECTORS);
  const Mask mask(width % kLanesF);
  for (int64_t i = 0; i < m; i += kTile) {
    const int64_t count = least<int64_t>(kTile, m - i);
    float* to[kTile];
    Vec<float> acc[kTile][VECTORS];
    UNROLL for (int r = 0; r < kTile; r++) {
      to[r] = dw + rows[i + (r < count ? r : 0)];
      UNROLL for (int j = 0; j < VECTORS; j++) acc[r][j] = load<PART>(to[r] + j * kLanesF, mask);
    }
    for (int64_t l = 0; l < lines.count; l++) {
      const float* from[kTile];
      UNROLL for (int r = 0; r < kTile; r++) from[r] = in + lines.in[l] + i + (r < count ? r : 0);
      multiply<float, kTile, VECTORS, PART>(acc, lines.cols, from, lines.in_col, dy + lines.pixel[l] * width, width,
                                            mask);
    }
    UNROLL for (int r = 0; r < kTile; r++) {
      if (r < count) {
        UNROLL for (int j = 0; j < VECTORS; j++) store<PART>(to[r] + j * kLanesF, acc[r][j], mask);
      }
    }
  }
}

void add_strip(const Lines& lines, int64_t m, const float* in, const float* dy, int64_t width, float* dw,
               const int64_t* rows) {
  if (width < kLanesF)
    tiles<1, true>(lines, m, in, dy, width, dw, rows);
  else if (width == kLanesF)
    tiles<1, false>(lines, m, in, dy, width, dw, rows);
  else if (width == 2 * kLanesF)
    tiles<2, false>(lines, m, in, dy, width, dw, rows);
  else
    tiles<kMostVectors, false>(lines, m, in, dy, width, dw, rows);
}

// Each channel by itself: dw (taps, channels) += sum over pixels of in (pixels, channels) times dy (pixels, channels)
template <bool PART>
void add_each(const Lines& lines, const Taps& taps, const float* in, const float* dy, int64_t channels, float* dw) {
  constexpr int kTile = tile_of(1);
  const Mask mask(channels % kLanesF);
  for (int64_t first = 0; first < taps.count; first += kTile) {
    const int64_t count = least<int64_t>(kTile, taps.count - first);
    VecF acc[kTile];
    const float* from[kTile];
    for (int64_t t = 0; t < kTile; t++) {
      acc[t] = t < count ? load<PART>(dw + (first + t) * channels, mask) : VecF{};
      from[t] = in + taps.offset[first + least(t, count - 1)];
    }
    for (int64_t l = 0; l < lines.count; l++)
      for (int64_t x = 0; x < lines.cols; x++) {
        const VecF g = load<PART>(dy + (lines.pixel[l] + x) * channels, mask);
        UNROLL for (int t = 0; t < kTile; t++) acc[t] += g * load<PART>(from[t] + lines.in[l] + x * lines.in_col, mask);
      }
    for (int64_t t = 0; t < count; t++) store<PART>(dw + (first + t) * channels, acc[t], mask);
  }
}

// The weight's gradient, cut into blocks of (channels, columns) of each group; depthwise, of as many groups as a vector
// has lanes.
struct Parts {
  Conv s;
  bool depthwise;
  int64_t taps, planes;        // of the kernel
  int64_t at_once, channels;   // of the image: copied together, and of a block
  int64_t by_channel, by_col;  // how many blocks there are, in each group
  Axis down, across;

  explicit Parts(const Conv& conv) : s(flattened(conv)), depthwise(is_depthwise(s)) {
    taps = s.h.kernel * s.w.kernel, planes = s.d.kernel;
    at_once = least(s.c, most<int64_t>(1, kChannels / planes));
    channels = least(s.c, most<int64_t>(1, kRows / (at_once * planes * taps)) * at_once);
    by_channel = ceil_div(s.c, channels), by_col = ceil_div(s.o, kChunk);
    down = forward_axis(s.h), across = forward_axis(s.w);
  }
  int64_t bundles() const { return depthwise ? ceil_div(s.groups, kLanesF) : s.groups; }
  int64_t blocks() const { return bundles() * by_channel * by_col; }
  // Elements of a block.
  int64_t size() const { return depthwise ? taps * kLanesF : channels * planes * taps * least(kChunk, s.o); }
};

// One block of the result.
struct Piece {
  int64_t group, groups, channel, channels, col, cols;

  Piece(const Parts& p, int64_t at) {
    col = at % p.by_col * kChunk, cols = least(kChunk, p.s.o - col);
    channel = at / p.by_col % p.by_channel * p.channels, channels = least(p.channels, p.s.c - channel);
    const int64_t together = p.depthwise ? kLanesF : 1;
    group = at / p.by_col / p.by_channel * together, groups = least(together, p.s.groups - group);
  }
};

struct Sums {
  const Parts& p;
  Stack images, gradients;
  Axis rows, cols;  // of the gradient

  void list_lines(const Block& b, int64_t each, int64_t in_row, int64_t channels, Lines& lines) const {
    lines.count = 0, lines.cols = b.cols, lines.in_col = p.across.pitch * channels;
    for (int64_t n = 0; n < b.images; n++)
      for (int64_t r = 0; r < b.rows; r++) {
        lines.in[lines.count] = n * each + r * p.down.pitch * in_row;
        lines.pixel[lines.count++] = (n * b.rows + r) * b.cols;
      }
  }
  // The block's images (positions, channels), and its gradient (pixels, channels), from a channel on.
  float* copied_images(const Block& b, int64_t channel, int64_t channels, int64_t& each, int64_t& in_row) const {
    const int64_t high = p.down.positions(b.rows), wide = p.across.positions(b.cols);
    in_row = wide * channels * p.planes, each = high * in_row;
    float* to = scratch_of<float>(0, b.images * each);
    for (int64_t i = 0; i < b.images; i++)
      images.copy_to(to + i * each, b.image + i, channel, channels, p.down, b.row * p.down.pitch, high, p.across,
                     b.col * p.across.pitch, wide);
    return to;
  }
  void copy_gradient(const Block& b, int64_t channel, int64_t channels, float* to) const {
    for (int64_t i = 0; i < b.images; i++)
      gradients.copy_to(to + i * b.rows * b.cols * channels, b.image + i, channel, channels, rows, b.row, b.rows, cols,
                        b.col, b.cols);
  }

  // The gradient's channels [first, first + count), in strips of (pixels, width).
  const float* copied_strips(const Block& b, int64_t first, int64_t count, float* to) const {
    const int64_t pixels = b.images * b.rows * b.cols;
    for (int64_t j = 0, w; j < count; j += w) {
      w = strip_width<float>(count - j);
      copy_gradient(b, first + j, w, to + j * pixels);
    }
    return to;
  }

  // `strips` of the block's gradient for the piece's columns; null if they have to be copied.
  void add_block(const Piece& piece, const Block& b, const float* strips, float* dw) const {
    const int64_t pixels = b.images * b.rows * b.cols;
    int64_t each, in_row;
    Lines lines;
    if (p.depthwise) {
      float* dy = scratch_of<float>(1, pixels * piece.groups);
      copy_gradient(b, piece.group, piece.groups, dy);
      const float* in = copied_images(b, piece.group, piece.groups, each, in_row);
      list_lines(b, each, in_row, piece.groups, lines);
      const Taps taps(straight(p.s.h), straight(p.s.w), in_row / piece.groups, piece.groups, false);
      if (piece.groups == kLanesF)
        add_each<false>(lines, taps, in, dy, piece.groups, dw);
      else
        add_each<true>(lines, taps, in, dy, piece.groups, dw);
      return;
    }
    const float* dy = strips;
    if (!dy) dy = copied_strips(b, piece.group * p.s.o + piece.col, piece.cols, scratch_of<float>(1, pixels * kChunk));
    for (int64_t c = 0; c < piece.channels; c += p.at_once) {
      const int64_t count = least(p.at_once, piece.channels - c), deep = count * p.planes;
      const float* in = copied_images(b, piece.group * p.s.c + piece.channel + c, count, each, in_row);
      list_lines(b, each, in_row, deep, lines);
      const Taps taps(straight(p.s.h), straight(p.s.w), in_row / deep, deep, true);
      auto* rows = scratch_of<int64_t>(3, taps.run);  // of the block, for channels of one tap after the other
      for (int64_t i = 0; i < taps.run; i++) rows[i] = (i % deep * p.taps + i / deep) * piece.cols;
      for (int64_t j = 0, w; j < piece.cols; j += w) {
        w = strip_width<float>(piece.cols - j);
        for (int64_t t = 0; t < taps.count; t++)
          add_strip(lines, taps.run, in + taps.offset[t], dy + j * pixels, w,
                    dw + (c * p.planes * p.taps + t * (taps.run / deep)) * piece.cols + j, rows);
      }
    }
  }

  // A block's sums to their places in the weight.
  void write(const Piece& piece, const float* from, float* dw) const {
    if (p.depthwise) {
      transpose_rows(
          p.taps, piece.groups, 1, [&](int64_t i) { return from + i * piece.groups; },
          [&](int64_t j) { return dw + (piece.group + j) * p.taps; });
      return;
    }
    const int64_t size = p.planes * p.taps;
    transpose_cols(
        piece.channels * size, piece.cols, [&](int64_t i) { return from + i * piece.cols; },
        [&](int64_t j) { return dw + ((piece.group * p.s.o + piece.col + j) * p.s.c + piece.channel) * size; });
  }
};

}  // namespace

void conv_weight_gradient(const Pool& pool, const Conv& conv, const float* x, const float* dy, float* dw) {
  const Parts p(conv);
  const Conv& s = p.s;
  const int64_t size = s.groups * s.o * s.c * p.planes * p.taps, images = s.n * s.d.out;
  if (!size) return;
  if (!images || !s.h.out || !s.w.out) return clear(dw, size);
  const auto plain = [](int64_t n) { return Axis{n, n, n, 1, 1, 1, 0, 0}; };
  const Sums sums{p,
                  {x, s.groups * s.c, s.d.in, s.h.in, s.w.in, s.d, false},
                  {dy, s.groups * s.o, s.d.out, s.h.out, s.w.out, {s.d.out, 1, s.d.out, 1, 1, 0}, false},
                  plain(s.h.out),
                  plain(s.w.out)};
  const Cut cut(images, s.h.out, s.w.out, kPixels);
  const double operations = 2.0 * static_cast<double>(size) * static_cast<double>(images * s.h.out * s.w.out);
  const int64_t tasks =
      most<int64_t>(1, operations < kTasks * kTask ? static_cast<int64_t>(operations / kTask) : kTasks);
  const int64_t blocks = p.blocks(), parts = least(cut.count(), ceil_div(tasks, blocks)), each = p.size();
  // A gradient that many blocks of channels read is copied before, once.
  const int64_t of_cut = p.by_channel >= kReused && !p.depthwise ? cut.images * cut.rows * cut.cols * s.o : 0;
  float* shared = of_cut ? scratch_of<float>(6, s.groups * cut.count() * of_cut) : nullptr;
  if (shared)
    parallel(pool, s.groups * cut.count(), [&](int64_t i) {
      const Block b(cut, i % cut.count());
      for (int64_t col = 0; col < s.o; col += kChunk)
        sums.copied_strips(b, i / cut.count() * s.o + col, least(kChunk, s.o - col),
                           shared + i * of_cut + col * (b.images * b.rows * b.cols));
    });
  float* partial = scratch_of<float>(2, blocks * parts * each);
  parallel(pool, blocks * parts, [&](int64_t task) {
    const int64_t part = task % parts;
    const Piece piece(p, task / parts);
    float* own = partial + task * each;
    clear(own, each);
    for (int64_t i = part * cut.count() / parts; i < (part + 1) * cut.count() / parts; i++) {
      const Block b(cut, i);
      const float* strips = shared;
      if (shared) strips += (piece.group * cut.count() + i) * of_cut + piece.col * (b.images * b.rows * b.cols);
      sums.add_block(piece, b, strips, own);
    }
  });
  parallel(pool, blocks, [&](int64_t block) {
    float* total = partial + block * parts * each;
    for (int64_t part = 1; part < parts; part++)
      for (int64_t i = 0; i < each; i++) total[i] += total[part * each + i];
    sums.write(Piece(p, block), total, dw);
  });
}

}  // namespace weft::WEFT_VARIANT
