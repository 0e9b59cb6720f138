// Random bits: threefry2x32 with 20 rounds (Salmon and others, 2011), of the counters 0, 1, 2, …

#include <cstdint>

#include "loops.h"
#include "python.h"

namespace weft {
namespace {

constexpr std::uint32_t kParity = 0x1BD11BDA;
constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};

inline void hash(const std::uint32_t (&words)[3], std::uint32_t& x, std::uint32_t& y) {
  x += words[0];
  y += words[1];
  for (std::uint32_t group = 0; group < 5; ++group) {
    for (const int rotation : kRotations[group % 2]) {
      x += y;
      y = ((y << rotation) | (y >> (32 - rotation))) ^ x;
    }
    x += words[(group + 1) % 3];
    y += words[(group + 2) % 3] + group + 1;
  }
}

// (key) -> the first `count` numbers that it draws, which follow each other.
template <typename T>
void draw(char** args, const npy_intp* count, const npy_intp*, void*) {
  const auto* key = reinterpret_cast<const std::uint32_t*>(args[0]);
  const std::uint32_t words[3] = {key[0], key[1], key[0] ^ key[1] ^ kParity};
  T* __restrict out = reinterpret_cast<T*>(args[1]);
  for (npy_intp i = 0; i < *count; ++i) {
    const auto counter = static_cast<std::uint64_t>(i);
    std::uint32_t x = static_cast<std::uint32_t>(counter >> 32), y = static_cast<std::uint32_t>(counter);
    hash(words, x, y);
    out[i] = sizeof(T) == 8 ? static_cast<T>((static_cast<std::uint64_t>(x) << 32) | y) : static_cast<T>(x ^ y);
  }
}

// (two words of a key, two of a counter) -> two words
void hash_all(char** args, const npy_intp* count, const npy_intp* strides, void*) {
  const auto at = [&](int operand, npy_intp i) {
    return reinterpret_cast<std::uint32_t*>(args[operand] + i * strides[operand]);
  };
  for (npy_intp i = 0; i < *count; ++i) {
    const std::uint32_t first = *at(0, i), second = *at(1, i);
    std::uint32_t x = *at(2, i), y = *at(3, i);
    hash({first, second, first ^ second ^ kParity}, x, y);
    *at(4, i) = x;
    *at(5, i) = y;
  }
}

}  // namespace

Found hash_found() { return {hash_all}; }

Found draw_of(npy_intp itemsize) {
  switch (itemsize) {
    case 1:
      return {draw<std::uint8_t>};
    case 2:
      return {draw<std::uint16_t>};
    case 4:
      return {draw<std::uint32_t>};
    case 8:
      return {draw<std::uint64_t>};
    default:
      return {};
  }
}

}  // namespace weft
