// A pool of threads. One call at a time has its help; another caller, meanwhile, computes alone.
//
// The caller takes tasks as the helpers do, and never waits for a thread that has not begun one: so helpers may come
// late, or not at all, as in a process that was forked.

#include <immintrin.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "threads.h"

namespace weft {
namespace {

// Operations of a product for each thread: 25 us. With less, calling a helper, and fetching what its cache holds, took
// as long as it saved.
constexpr double kLeastOperations = 4e6;
constexpr int kSpins = 1000;  // of a helper before it sleeps: some 50 us, as waking it takes as long

struct Tasks {
  void (*run)(const void* arg, int64_t i);
  const void* arg;
  int64_t count, threads;
  unsigned rounding = _mm_getcsr();  // of the caller, and what becomes of tiny numbers: the same in all threads
  std::atomic<int64_t> done{0};
  std::unique_ptr<std::atomic<bool>[]> taken = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(count));

  // Each thread begins with a part of its own, so that it finds in its cache what it has computed for the last call.
  void work(int64_t thread) {
    const int64_t first = thread % threads * count / threads;
    for (int64_t at = 0; at < count; ++at) {
      const int64_t i = (first + at) % count;
      if (taken[i].exchange(true, std::memory_order_relaxed)) continue;
      run(arg, i);
      done.fetch_add(1, std::memory_order_release);
    }
  }
};

class Helpers {
 public:
  // Computes all tasks with the help of so many threads.
  void run(int64_t count, const std::shared_ptr<Tasks>& tasks) {
    const std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn) return tasks->work(0);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_ = tasks;
      generation_.fetch_add(1, std::memory_order_release);
    }
    start(count);
    for (int64_t i = std::min<int64_t>(count, asleep_.load(std::memory_order_acquire)); i > 0; --i)
      called_.notify_one();
    tasks->work(0);
    for (int spins = 0; tasks->done.load(std::memory_order_acquire) < tasks->count; ++spins) {
      if (spins < kSpins)
        _mm_pause();
      else
        std::this_thread::yield();  // the system has stopped a helper within its task
    }
  }

 private:
  // Signals are for the threads of Python, whose calls of the system they interrupt.
  void start(int64_t count) {
    if (started_ >= count) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (; started_ < count; ++started_) {
        std::thread helper([this, thread = started_ + 1] { help(thread); });
        pthread_setname_np(helper.native_handle(), "weft");
        helper.detach();
      }
    } catch (const std::system_error&) {  // the system has no more threads: those that there are compute
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void help(int64_t thread) {
    int64_t seen = 0;
    while (true) {
      for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spins) _mm_pause();
      std::shared_ptr<Tasks> tasks;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        ++asleep_;
        called_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
        --asleep_;
        seen = generation_.load(std::memory_order_relaxed);
        tasks = tasks_;
      }
      _mm_setcsr(tasks->rounding);
      tasks->work(thread);
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable called_;
  std::shared_ptr<Tasks> tasks_;
  std::atomic<int64_t> generation_{0};
  std::atomic<int> asleep_{0};
  int64_t started_ = 0;
};

// Never freed, since helpers outlive the interpreter. A forked process has none of its parent's threads, and locks that
// these may have held: it begins with helpers of its own.
Helpers* helpers = nullptr;
int64_t most = 1;

// `threads` is a number: how many threads there are to be.
void run(void* threads, int64_t count, void (*task)(const void*, int64_t), const void* arg) {
  const int64_t wanted = std::min(reinterpret_cast<int64_t>(threads), count);
  Tasks* tasks = new Tasks{task, arg, count, wanted};
  helpers->run(wanted - 1, std::shared_ptr<Tasks>(tasks));
}

PyObject* set_threads(PyObject*, PyObject* count) {
  const long threads = PyLong_AsLong(count);
  if (threads == -1 && PyErr_Occurred()) return nullptr;
  most = std::max(1L, threads);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_threads", set_threads, METH_O, "On how many threads the machine computes at most."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

Pool threads_for(double operations) {
  const auto worth = static_cast<int64_t>(operations / kLeastOperations);
  const int64_t threads = std::clamp<int64_t>(worth, 1, most);
  return {reinterpret_cast<void*>(threads), threads, run};
}

bool init_threads(PyObject* module) {
  const auto renew = [] { helpers = new Helpers; };
  renew();
  pthread_atfork(nullptr, nullptr, renew);
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace weft
