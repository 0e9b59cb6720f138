// `matmul`: NumPy's function of this name for matrices of floats, by the kernels for products.
//
// OpenBLAS takes 1.1 to 1.8 times as long on one thread, and 1 us more for tiny matrices; several of its threads take
// longer than one below 25 million multiplications, as they wait for each other.

#include <cstring>

#include "kernels.h"
#include "loops.h"
#include "python.h"
#include "threads.h"
#include "variant.h"

namespace weft {
namespace {

constexpr int kLeft = 5, kRight = 6, kOut = 4;  // places of memory of this thread; kernels for products use the first

// A matrix whose rows, or columns, lie `ld` elements apart.
template <class T>
struct Matrix {
  const T* elements;
  int64_t ld;
  bool is_transposed;
};

// The matrix in memory where elements of a row, or of a column, follow each other; else a copy.
template <class T>
Matrix<T> dense(const char* from, npy_intp rows, npy_intp columns, const npy_intp* strides, int slot) {
  constexpr npy_intp size = sizeof(T);
  const npy_intp down = strides[0], across = strides[1];
  const T* elements = reinterpret_cast<const T*>(from);
  if ((across == size || columns == 1) && down % size == 0) return {elements, down / size, false};
  if ((down == size || rows == 1) && across % size == 0) return {elements, across / size, true};
  T* copies = static_cast<T*>(scratch(slot, static_cast<std::size_t>(rows * columns * size)));
  for (npy_intp i = 0; i < rows; ++i)
    for (npy_intp j = 0; j < columns; ++j)
      std::memcpy(copies + i * columns + j, from + i * down + j * across, sizeof(T));
  return {copies, columns, false};
}

template <class T>
void product(const Product& x) {
  constexpr bool is_single = sizeof(T) == sizeof(float);
  // Numbers of twice the size take twice the time.
  const Pool pool = threads_for((is_single ? 2.0 : 4.0) * static_cast<double>(x.m * x.n) * static_cast<double>(x.k));
  const bool is_wide = variant() == kAvx512;
  if constexpr (is_single)
    (is_wide ? avx512::product_f32 : avx2::product_f32)(pool, x);
  else
    (is_wide ? avx512::product_f64 : avx2::product_f64)(pool, x);
}

template <class T>
void multiply(const Matrix<T>& a, const Matrix<T>& b, npy_intp m, npy_intp k, npy_intp n, T* c) {
  if (n == 1)  // kernels compute rows of the result, vector by vector
    product<T>({1, 1, m, k, b.ld != 1, !a.is_transposed, b.elements, a.elements, nullptr, c, b.ld, a.ld});
  else
    product<T>({1, m, n, k, a.is_transposed, b.is_transposed, a.elements, b.elements, nullptr, c, a.ld, b.ld});
}

// The loop of the function: dims are (matrices, m, k, n), strides those between matrices, then those of each operand.
template <class T>
void loop(char** args, const npy_intp* dims, const npy_intp* strides, void*) {
  const npy_intp m = dims[1], k = dims[2], n = dims[3], size = sizeof(T);
  const bool is_dense = (strides[8] == size || n == 1) && (strides[7] == n * size || m == 1);
  for (npy_intp at = 0; at < dims[0]; ++at) {
    const Matrix<T> a = dense<T>(args[0] + at * strides[0], m, k, strides + 3, kLeft);
    const Matrix<T> b = dense<T>(args[1] + at * strides[1], k, n, strides + 5, kRight);
    char* out = args[2] + at * strides[2];
    T* c =
        is_dense ? reinterpret_cast<T*>(out) : static_cast<T*>(scratch(kOut, static_cast<std::size_t>(m * n * size)));
    multiply(a, b, m, k, n, c);
    for (npy_intp i = 0; i < m * n && !is_dense; ++i)
      std::memcpy(out + i / n * strides[7] + i % n * strides[8], c + i, sizeof(T));
  }
}

PyUFuncGenericFunction loops[] = {loop<float>, loop<double>};
char types[] = {NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE};
void* no_data[] = {nullptr, nullptr};

}  // namespace

bool init_matmul(PyObject* module) {
  if (variant() == kNone) return true;
  const Ref function(PyUFunc_FromFuncAndDataAndSignature(loops, no_data, types, 2, 2, 1, PyUFunc_None, "matmul",
                                                         "Products of matrices of floats on the caller's thread.", 0,
                                                         "(m,k),(k,n)->(m,n)"));
  return function && PyModule_AddObjectRef(module, "matmul", function.get()) == 0;
}

}  // namespace weft
