// Which instructions kernels may use on this CPU.
#pragma once

namespace weft {

constexpr int kNone = 0, kAvx2 = 2, kAvx512 = 512;
int variant();

}  // namespace weft
