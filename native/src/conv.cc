// Convolutions and the gradients of their inputs: sums over taps of the kernel, without an array of patches. A tile of
// the result stays in registers over many taps, since each of its pixels has its own address in the copied image.
#include "conv.h"

namespace weft::WEFT_VARIANT {
namespace {

constexpr int64_t kDepth = 384;         // of a strip of the weight that a tile is summed over at once
constexpr int64_t kChunk = 96;          // channels of the result that are written together
constexpr int64_t kCopied = 512 << 10;  // bytes of an image that a task copies, about
constexpr int64_t kLeastPixels = 64;    // of a block: the weight is read again for each
constexpr int64_t kTasks = 12;          // at least, where each has kTask operations
constexpr double kTask = 1e6;

// Pixels of a tile: with one vector each, fewer could not hide how long an addition takes.
constexpr int tile_of(int vectors) { return vectors == 1 ? 12 : rows_for(vectors); }

// Which pixels a phase of a block has: where in the copied image and in the block's result.
struct Pixels {
  int64_t count = 0;
  int64_t from[kMostPixels], to[kMostPixels];
};

// What is read next comes into cache while something else is computed.
INLINE void prefetch(const float* next, int64_t count) {
  constexpr int64_t line = 16;
  for (int64_t i = 0; i < count; i += line) __builtin_prefetch(next + i, 0, 2);
}

// out(pixel) = sum over taps [first, last) of in[pixel + offset ...] (run) times weight (taps * run, width), or += if
// `add`
template <int VECTORS, bool PART>
void tiles(const Pixels& pixels, const Taps& taps, int64_t first, int64_t last, int64_t run, const float* in,
           float* out, int64_t ld, const float* weight, int64_t width, bool add) {
  constexpr int kTile = tile_of(VECTORS);
  const Mask mask(width % kLanesF);
  const int64_t size = (last - first) * run * width, ahead = ceil_div(size, pixels.count);  // of the strip's next part
  for (int64_t at = 0; at < pixels.count; at += kTile) {
    const int64_t count = least<int64_t>(kTile, pixels.count - at);
    prefetch(weight + size + at * ahead, ahead * count);
    const float* from[kTile];
    float* to[kTile];
    for (int64_t i = 0; i < kTile; i++) {
      from[i] = in + pixels.from[at + least(i, count - 1)];
      to[i] = out + pixels.to[at + least(i, count - 1)] * ld;
    }
    Vec<float> acc[kTile][VECTORS];
    UNROLL for (int i = 0; i < kTile; i++) {
      UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] = add ? load<PART>(to[i] + j * kLanesF, mask) : VecF{};
    }
    const float* b = weight;
    for (int64_t t = first; t < last; t++, b += run * width) {
      const float* rows[kTile];
      UNROLL for (int i = 0; i < kTile; i++) rows[i] = from[i] + taps.offset[t];
      multiply<float, kTile, VECTORS, PART>(acc, run, rows, 1, b, width, mask);
    }
    UNROLL for (int i = 0; i < kTile; i++) {
      if (i < count) {
        UNROLL for (int j = 0; j < VECTORS; j++) store<PART>(to[i] + j * kLanesF, acc[i][j], mask);
      }
    }
  }
}

// One strip of the result's channels, `width` as strip_width says.
void sum_strip(const Pixels& pixels, const Taps& taps, const float* in, float* out, int64_t ld, const float* weight,
               int64_t width) {
  if (!pixels.count) return;  // the last cells of a plane may lack a phase
  const auto go = [&](int64_t first, int64_t last, int64_t skip, int64_t run) {
    const float* b = weight + (first * taps.run + skip) * width;
    const auto with = [&](auto f) {
      f(pixels, taps, first, last, run, in + skip, out, ld, b, width, first + skip > 0);
    };
    if (width < kLanesF)
      with(tiles<1, true>);
    else if (width == kLanesF)
      with(tiles<1, false>);
    else if (width == 2 * kLanesF)
      with(tiles<2, false>);
    else
      with(tiles<kMostVectors, false>);
  };
  if (taps.run > kDepth) {
    const int64_t part = ceil_div(taps.run, ceil_div(taps.run, kDepth));
    for (int64_t t = 0; t < taps.count; t++)
      for (int64_t skip = 0; skip < taps.run; skip += part) go(t, t + 1, skip, least(part, taps.run - skip));
    return;
  }
  const int64_t together = kDepth / most<int64_t>(1, taps.run);
  for (int64_t t = 0; t < taps.count; t += together) go(t, least(taps.count, t + together), 0, taps.run);
}

// Each channel by itself: vectors hold one pixel's channels, and `weight` is (taps, channels).
template <bool PART>
void sum_each(const Pixels& pixels, const Taps& taps, const float* in, float* out, const float* weight,
              int64_t channels) {
  constexpr int kTile = tile_of(1);
  const Mask mask(channels % kLanesF);
  for (int64_t at = 0; at < pixels.count; at += kTile) {
    const int64_t count = least<int64_t>(kTile, pixels.count - at);
    const float* from[kTile];
    for (int64_t i = 0; i < kTile; i++) from[i] = in + pixels.from[at + least(i, count - 1)];
    VecF acc[kTile] = {};
    const float* b = weight;
    for (int64_t t = 0; t < taps.count; t++, b += channels) {
      const VecF row = load<PART>(b, mask);
      UNROLL for (int i = 0; i < kTile; i++) acc[i] += row * load<PART>(from[i] + taps.offset[t], mask);
    }
    UNROLL for (int i = 0; i < kTile; i++) {
      if (i < count) store<PART>(out + pixels.to[at + i] * channels, acc[i], mask);
    }
  }
}

// Along one dim, what input pixels phase, phase + stride, ... take from the result's pixels: which taps, and from
// where, relative to the pixel's number among them.
Line phase_of(const Dim& s, int64_t phase) {
  Line line;
  for (int64_t i = s.kernel - 1; i >= 0; i--) {
    const int64_t at = phase + s.start - i * s.dilation;
    if (at % s.stride == 0) line.kernel[line.count] = i, line.shift[line.count++] = at / s.stride;
  }
  return line;
}

Axis gradient_axis(const Dim& s) {
  int64_t low = 0, high = 0;
  for (int64_t phase = 0; phase < s.stride; phase++) {
    const Line line = phase_of(s, phase);
    for (int64_t i = 0; i < line.count; i++) low = least(low, line.shift[i]), high = most(high, line.shift[i]);
  }
  return {s.out, s.in, ceil_div(s.in, s.stride), s.stride, 1, 1, low, high - low};
}

// A convolution, or the gradient of its input.
struct Sums {
  Conv s;
  bool backward, depthwise;
  Axis down, across;
  int64_t read, written;  // channels of a group
  int64_t taps, deep;     // of the kernel's plane; channels times planes

  Sums(const Conv& conv, bool backward)
      : s(flattened(conv)),
        backward(backward),
        depthwise(is_depthwise(s)),
        down(backward ? gradient_axis(s.h) : forward_axis(s.h)),
        across(backward ? gradient_axis(s.w) : forward_axis(s.w)),
        read(backward ? s.o : s.c),
        written(backward ? s.c : s.o),
        taps(s.h.kernel * s.w.kernel),
        deep(read * s.d.kernel) {}

  int64_t images() const { return s.n * slices(); }
  int64_t slices() const { return backward ? s.d.in : s.d.out; }
  int64_t phases() const { return down.phases * across.phases; }

  static Line line_of(const Dim& dim, const Axis& axis, int64_t phase, bool backward) {
    Line line = backward ? phase_of(dim, phase) : straight(dim);
    for (int64_t i = 0; backward && i < line.count; i++) line.shift[i] -= axis.start;
    return line;
  }
  Line rows_of(int64_t phase) const { return line_of(s.h, down, phase / across.phases, backward); }
  Line cols_of(int64_t phase) const { return line_of(s.w, across, phase % across.phases, backward); }

  // Groups that are computed together: all lanes of a vector, where each channel is one.
  int64_t together() const { return depthwise ? kLanesF : 1; }
  int64_t bundles() const { return ceil_div(s.groups, together()); }
};

// Where the weight's taps lie when it is in order: by phases, each in strips of (taps, deep, width).
struct Place {
  int64_t before, depth, row;
};

void place_taps(const Sums& sums, Place* places) {
  int64_t before = 0;
  for (int64_t phase = 0; phase < sums.phases(); phase++) {
    const Line rows = sums.rows_of(phase), cols = sums.cols_of(phase);
    const int64_t depth = rows.count * cols.count * sums.deep;
    for (int64_t i = 0; i < rows.count; i++)
      for (int64_t j = 0; j < cols.count; j++)
        places[rows.kernel[i] * sums.s.w.kernel + cols.kernel[j]] = {before, depth, (i * cols.count + j) * sums.deep};
    before += depth;
  }
}

// One strip of a group's weight: channels [first, first + width) of what is written.
void pack_strip(const Sums& sums, const Place* places, const float* weight, int64_t first, int64_t width, float* to) {
  const int64_t taps = sums.taps, planes = sums.s.d.kernel;
  const auto at = [&](int64_t row, int64_t channel) {  // row of (channels, taps), which a channel begins
    const auto count = static_cast<uint32_t>(taps), of = static_cast<uint32_t>(row);  // they divide faster
    const Place& p = places[of % count];
    return to + p.before * sums.written + first * p.depth + (p.row + channel + of / count) * width;
  };
  if (!sums.backward) {
    transpose_rows(
        width, sums.deep * taps, 1, [&](int64_t i) { return weight + (first + i) * sums.deep * taps; },
        [&](int64_t j) { return at(j, 0); });
    return;
  }
  for (int64_t o = 0; o < sums.read; o++) {
    const float* from = weight + (o * sums.written + first) * planes * taps;
    if (planes * taps == 1)
      copy(at(0, o), from, width);
    else
      transpose_rows(
          width, planes * taps, 1, [&](int64_t i) { return from + i * planes * taps; },
          [&](int64_t j) { return at(j, o * planes); });
  }
}

// The weight in the order in which it is read.
const float* packed_weight(const Pool& pool, const Sums& sums, const float* weight) {
  auto* places = scratch_of<Place>(3, sums.taps);
  place_taps(sums, places);
  const int64_t size = sums.deep * sums.taps * sums.written;
  float* packed = scratch_of<float>(2, sums.s.groups * size);
  if (sums.depthwise) {
    for (int64_t g = 0; g < sums.s.groups; g += kLanesF) {
      const int64_t channels = least<int64_t>(kLanesF, sums.s.groups - g);
      transpose_rows(
          channels, sums.taps, 1, [&](int64_t i) { return weight + (g + i) * sums.taps; },
          [&](int64_t j) { return packed + g * sums.taps + (places[j].before + places[j].row) * channels; });
    }
    return packed;
  }
  const int64_t chunks = ceil_div(sums.written, kChunk);
  parallel(pool, sums.s.groups * chunks, [&](int64_t task) {
    const int64_t first = task % chunks * kChunk, end = least(sums.written, first + kChunk), at = task / chunks * size;
    for (int64_t j = first, w; j < end; j += w) {
      w = strip_width<float>(end - j);
      pack_strip(sums, places, weight + at, j, w, packed + at);
    }
  });
  return packed;
}

// A part of the result in cache, channels last.
struct Out {
  int64_t row, rows, col, cols;

  Out(const Axis& down, const Axis& across, const Block& b) {
    row = b.row * down.phases, rows = least(down.out, (b.row + b.rows) * down.phases) - row;
    col = b.col * across.phases, cols = least(across.out, (b.col + b.cols) * across.phases) - col;
  }
};

void list_pixels(const Sums& sums, const Block& b, const Out& out, int64_t phase, int64_t each, int64_t in_row,
                 int64_t channels, Pixels& pixels) {
  const int64_t first_row = phase / sums.across.phases, first_col = phase % sums.across.phases;
  pixels.count = 0;
  for (int64_t n = 0; n < b.images; n++)
    for (int64_t y = first_row, r = 0; y < out.rows; y += sums.down.phases, r += sums.down.pitch)
      for (int64_t x = first_col, q = 0; x < out.cols; x += sums.across.phases, q += sums.across.pitch) {
        pixels.from[pixels.count] = n * each + r * in_row + q * channels;
        pixels.to[pixels.count++] = (n * out.rows + y) * out.cols + x;
      }
}

// The block's result (images, rows, cols, width) to its places in y, from channel `first` on.
void write(const Sums& sums, const Block& b, const Out& out, const float* from, int64_t width, int64_t first,
           float* y) {
  const int64_t plane = sums.down.out * sums.across.out, slices = sums.slices();
  const bool whole = out.cols == sums.across.out;  // rows follow each other
  const int64_t runs = whole ? 1 : out.rows, length = whole ? out.rows * out.cols : out.cols;
  for (int64_t n = b.image; n < b.image + b.images; n++)
    for (int64_t r = 0; r < runs; r++, from += length * width) {
      const int64_t channel = n / slices * sums.s.groups * sums.written + first, z = n % slices;
      float* to = y + (channel * slices + z) * plane + (out.row + r) * sums.across.out + out.col;
      transpose_cols(
          length, width, [&](int64_t i) { return from + i * width; },
          [&](int64_t j) { return to + j * slices * plane; });
    }
}

// The parts of images that blocks read, in cache. Blocks are counted through the bundles of groups.
struct Copies {
  const Sums& sums;
  const Cut& cut;
  const Stack& stack;
  int64_t most;  // elements of a block, at most

  Copies(const Sums& sums, const Cut& cut, const Stack& stack) : sums(sums), cut(cut), stack(stack) {
    most = cut.images * sums.down.positions(cut.rows) * sums.across.positions(cut.cols) * sums.deep * sums.together();
  }
  int64_t group(int64_t block) const { return block / cut.count() * sums.together(); }
  int64_t lanes(int64_t group) const { return least(sums.together(), sums.s.groups - group); }

  const float* copy(int64_t block, float* to) const {
    const Axis &down = sums.down, &across = sums.across;
    const Block b(cut, block % cut.count());
    const int64_t first = group(block), channels = sums.read * lanes(first);
    const int64_t rows = down.positions(b.rows), cols = across.positions(b.cols);
    for (int64_t i = 0; i < b.images; i++)
      stack.copy_to(to + i * rows * cols * channels * sums.s.d.kernel, b.image + i, first * sums.read, channels, down,
                    b.row * down.pitch, rows, across, b.col * across.pitch, cols);
    return to;
  }
};

void compute(const Pool& pool, const Sums& sums, const float* x, const float* weight, float* y) {
  const Axis &down = sums.down, &across = sums.across;
  const Conv& s = sums.s;
  const Stack stack{x, s.groups * sums.read, sums.backward ? s.d.out : s.d.in, down.in, across.in, s.d, sums.backward};
  const int64_t cells = sums.images() * down.cells * across.cells, phases = sums.phases();
  const int64_t channels = sums.depthwise ? kLanesF : sums.deep;
  const int64_t chunks = sums.depthwise ? 1 : ceil_div(sums.written, kChunk);
  const double operations = 2.0 * static_cast<double>(cells) * static_cast<double>(sums.deep * sums.taps) *
                            static_cast<double>(s.groups * sums.written);
  const int64_t tasks =
      most<int64_t>(1, operations < kTasks * kTask ? static_cast<int64_t>(operations / kTask) : kTasks);
  int64_t pixels = least(kMostPixels, most(kLeastPixels, kCopied / 4 / (down.pitch * across.pitch * channels)));
  const auto cut_in = [&](int64_t count) {
    return Cut(sums.images(), down.cells, across.cells, most<int64_t>(1, count / phases));
  };
  while (pixels > kLeastPixels && cut_in(pixels).count() * sums.bundles() * chunks < tasks) pixels /= 2;
  const Cut cut = cut_in(pixels);
  const int64_t blocks = cut.count() * sums.bundles(), split = least(chunks, ceil_div(tasks, blocks));
  const float* packed = packed_weight(pool, sums, weight);
  const Copies copies(sums, cut, stack);
  // Blocks that several tasks read are copied before, once.
  float* shared = split > 1 ? scratch_of<float>(6, blocks * copies.most) : nullptr;
  if (shared) parallel(pool, blocks, [&](int64_t block) { copies.copy(block, shared + block * copies.most); });
  parallel(pool, blocks * split, [&](int64_t task) {
    const int64_t block = task / split, group = copies.group(block), lanes = copies.lanes(group);
    const int64_t read = sums.deep * lanes;
    const Block b(cut, block % cut.count());
    const Out out(down, across, b);
    const int64_t cols = across.positions(b.cols), each = down.positions(b.rows) * cols * read;
    const float* in = shared ? shared + block * copies.most : copies.copy(block, scratch_of<float>(0, copies.most));
    const int64_t begin = task % split * chunks / split, end = (task % split + 1) * chunks / split;
    for (int64_t chunk = begin; chunk < end; chunk++) {
      const int64_t first = chunk * kChunk, width = sums.depthwise ? lanes : least(kChunk, sums.written - first);
      float* result = scratch_of<float>(1, b.images * out.rows * out.cols * width);
      const float* own = packed + group * sums.deep * sums.taps * sums.written;
      for (int64_t phase = 0; phase < phases; phase++) {
        const Taps taps(sums.rows_of(phase), sums.cols_of(phase), cols, read, !sums.depthwise);
        Pixels pixels;
        list_pixels(sums, b, out, phase, each, cols * read, read, pixels);
        if (!taps.depth())
          for (int64_t i = 0; i < pixels.count; i++) clear(result + pixels.to[i] * width, width);
        else if (!sums.depthwise)
          for (int64_t j = 0, w; j < width; j += w) {
            w = strip_width<float>(width - j);
            sum_strip(pixels, taps, in, result + j, width, own + (first + j) * taps.depth(), w);
          }
        else if (lanes == kLanesF)
          sum_each<false>(pixels, taps, in, result, own, lanes);
        else
          sum_each<true>(pixels, taps, in, result, own, lanes);
        own += taps.depth() * (sums.depthwise ? 1 : sums.written);
      }
      write(sums, b, out, result, width, group * sums.written + first, y);
    }
  });
}

}  // namespace

void conv(const Pool& pool, const Conv& s, const float* x, const float* weight, float* y) {
  const int64_t size = s.n * s.groups * s.o * s.d.out * s.h.out * s.w.out;
  if (!s.c) return clear(y, size);
  if (size) compute(pool, Sums(s, false), x, weight, y);
}

// With a stride, the pixels of the input fall into phases, each of which has its own taps.
void conv_input_gradient(const Pool& pool, const Conv& s, const float* dy, const float* weight, float* dx) {
  const int64_t size = s.n * s.groups * s.c * s.d.in * s.h.in * s.w.in;
  if (!s.o || !s.d.out || !s.h.out || !s.w.out) return clear(dx, size);
  if (size) compute(pool, Sums(s, true), dy, weight, dx);
}

}  // namespace weft::WEFT_VARIANT
