// How a product is cut into the blocks that threads compute.
#pragma once
#include "vec.h"

namespace weft::WEFT_VARIANT {

// What a kernel asks of its blocks. `rows` and `columns` are at most that many, in multiples of the steps; where only
// the number of tasks asks for smaller blocks, they keep `least_rows`. Operations below `alone` are not worth waking a
// thread for, and `task` are what a task should have where there are several for each thread.
struct Limits {
  int64_t rows, columns, row_step, column_step, least_rows;
  double alone, task;
};
constexpr int64_t kTasksPerThread = 2;  // at most, where blocks are small: a thread may come late or be stopped

// block(batch, row, rows, column, columns) for each block of a product, on all threads.
template <class F>
void blocks(const Pool& pool, const Product& x, const Limits& most_of, const F& block) {
  const double operations = 2.0 * static_cast<double>(x.batch * x.m) * static_cast<double>(x.n * x.k);
  const bool alone = operations < most_of.alone || pool.threads <= 1;
  const int64_t worth = static_cast<int64_t>(operations / most_of.task);
  const int64_t wanted = alone ? 1 : most(pool.threads, least(kTasksPerThread * pool.threads, worth));
  int64_t down = ceil_div(x.m, most_of.rows), across = ceil_div(x.n, most_of.columns);
  down = most(down, least(ceil_div(wanted, x.batch * across), x.m / most_of.least_rows));
  across = most(across, least(ceil_div(wanted, x.batch * down), ceil_div(x.n, most_of.column_step)));
  const int64_t rows = ceil_div(ceil_div(x.m, down), most_of.row_step) * most_of.row_step;
  const int64_t columns = ceil_div(ceil_div(x.n, across), most_of.column_step) * most_of.column_step;
  down = ceil_div(x.m, rows), across = ceil_div(x.n, columns);
  const auto task = [&](int64_t t) {
    const int64_t i = t % down * rows, j = t / down % across * columns;
    block(t / down / across, i, least(rows, x.m - i), j, least(columns, x.n - j));
  };
  const int64_t tasks = x.batch * down * across;
  if (alone)
    for (int64_t t = 0; t < tasks; t++) task(t);
  else
    parallel(pool, tasks, task);
}

}  // namespace weft::WEFT_VARIANT
