// Numbers of objects by their addresses: a hash table with open addressing, which a flush fills and forgets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

// The numbers of objects by address.
class Numbers {
 public:
  // Forget all, and make room for so many.
  void reset(size_t count) {
    size_t size = 64;
    while (size < 2 * count) size *= 2;
    places_.assign(size, {nullptr, -1});
    count_ = 0;
  }
  // The number of an object, or -1.
  int of(const void* object) const {
    const Place& place = places_[find(object)];
    return place.object ? place.number : -1;
  }
  void set(const void* object, int number) {
    if (2 * ++count_ > places_.size()) grow();
    places_[find(object)] = {object, number};
  }

 private:
  struct Place {
    const void* object;
    int number;
  };
  size_t find(const void* object) const {
    const size_t mask = places_.size() - 1;
    size_t at = (reinterpret_cast<uintptr_t>(object) >> 4) * 0x9e3779b97f4a7c15u >> 20 & mask;
    while (places_[at].object && places_[at].object != object) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Place> old(2 * places_.size(), {nullptr, -1});
    old.swap(places_);
    for (const Place& place : old) {
      if (place.object) places_[find(place.object)] = place;
    }
  }

  std::vector<Place> places_;
  size_t count_ = 0;
};

}  // namespace weft
