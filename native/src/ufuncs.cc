// Functions of the extension that work as those of NumPy do: Python calls them, and the machine has their loops.

#include <algorithm>
#include <array>
#include <cstring>

#include "functions.h"
#include "loops.h"
#include "python.h"
#include "variant.h"

namespace weft {
namespace {

using Kernel = void (*)(int64_t count, const float* x, float* y);

// A kernel for elements that follow each other, as a loop over elements anywhere. `data` is the kernel.
void loop(char** args, const npy_intp* count, const npy_intp* strides, void* data) {
  const auto kernel = reinterpret_cast<Kernel>(data);
  constexpr npy_intp kSize = sizeof(float), kBlock = 256;
  const npy_intp n = *count, in = strides[0], out = strides[1];
  const char* source = args[0];
  char* target = args[1];
  if (in == kSize && out == kSize) {
    kernel(n, reinterpret_cast<const float*>(source), reinterpret_cast<float*>(target));
    return;
  }
  std::array<float, kBlock> block;
  for (npy_intp first = 0; first < n; first += kBlock) {
    const npy_intp size = std::min(kBlock, n - first);
    for (npy_intp i = 0; i < size; ++i) std::memcpy(&block[i], source + (first + i) * in, kSize);
    kernel(size, block.data(), block.data());
    for (npy_intp i = 0; i < size; ++i) std::memcpy(target + (first + i) * out, &block[i], kSize);
  }
}

struct Function {
  const char* name;
  Kernel narrow, wide;  // by AVX2, and by AVX-512
};
constexpr Function kFunctions[] = {
    {"erf", avx2::erf, avx512::erf},
    {"erfc", avx2::erfc, avx512::erfc},
    {"logistic", avx2::logistic, avx512::logistic},
};
PyUFuncGenericFunction loops[] = {loop};
char types[] = {NPY_FLOAT, NPY_FLOAT};
void* kernels[std::size(kFunctions)][1];

}  // namespace

bool init_ufuncs(PyObject* module) {
  if (variant() == kNone) return true;
  for (std::size_t at = 0; at < std::size(kFunctions); ++at) {
    const Function& function = kFunctions[at];
    kernels[at][0] = reinterpret_cast<void*>(variant() == kAvx512 ? function.wide : function.narrow);
    const Ref ufunc(PyUFunc_FromFuncAndData(loops, kernels[at], types, 1, 1, 1, PyUFunc_None, function.name,
                                            "A function of float32 numbers.", 0));
    if (!ufunc || PyModule_AddObjectRef(module, function.name, ufunc.get()) < 0) return false;
  }
  return init_matmul(module);
}

}  // namespace weft
