// Machines, from fragments: what is needed, where it is kept, and in which order it runs.

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "machine.h"
#include "python.h"

namespace weft {
namespace {

constexpr npy_intp kLine = 64;         // bytes, to which memory in the arena is aligned
constexpr npy_intp kLong = 100'000;    // elements, whose step takes some ten microseconds
constexpr npy_intp kShared = 500'000;  // elements, which several threads compute
constexpr int kNever = std::numeric_limits<int>::max();

void require(bool holds, const char* text) {
  if (holds) return;
  PyErr_SetString(PyExc_ValueError, text);
  throw PythonError();
}

class Plan {
 public:
  Plan(std::vector<Register> inputs, const std::vector<Part>& parts, const std::vector<int>& outputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].buffer = static_cast<int>(i);
      machine_.inputs.push_back(static_cast<int>(i));
      Buffer buffer{.place = Place::input, .input = static_cast<int>(i), .like = static_cast<int>(i)};
      machine_.buffers.push_back(std::move(buffer));
      entries_.push_back(static_cast<int>(i));
    }
    machine_.registers = std::move(inputs);
    for (const Part& part : parts) append(part);
    for (const int entry : outputs) machine_.outputs.push_back(entries_.at(entry));
  }

  Machine finished() {
    drop_unused();
    place_calls();
    place_outputs();
    find_actions();
    bring_forward();
    find_lifetimes();
    build();
    return std::move(machine_);
  }

 private:
  int buffer_of(int number) const { return machine_.registers[number].buffer; }

  void append(const Part& part) {
    const Fragment& fragment = *part.fragment;
    require(static_cast<int>(part.inputs.size()) == fragment.inputs, "a part has other inputs than its fragment");
    const int first_buffer = static_cast<int>(machine_.buffers.size());
    for (std::size_t i = 0; i < fragment.sizes.size(); ++i) {
      Buffer buffer{.bytes = fragment.sizes[i], .constant = fragment.constants[i]};
      if (buffer.constant) buffer.place = Place::constant;
      machine_.buffers.push_back(std::move(buffer));
    }
    std::vector<int> numbers;
    for (std::size_t i = 0; i < fragment.registers.size(); ++i) {
      const Register& shown = fragment.registers[i];
      if (static_cast<int>(i) < fragment.inputs) {
        const int entry = entries_.at(part.inputs[i]);
        const Register& given = machine_.registers[entry];
        require(given.shape == shown.shape && given.strides == shown.strides, "an input lies otherwise than expected");
        numbers.push_back(entry);
        continue;
      }
      numbers.push_back(static_cast<int>(machine_.registers.size()));
      Register placed = shown;
      if (shown.buffer < 0) {
        const Register& given = machine_.registers[numbers[~shown.buffer]];
        placed.buffer = given.buffer;
        placed.offset += given.offset;
      } else {
        placed.buffer += first_buffer;
      }
      machine_.registers.push_back(std::move(placed));
    }
    for (Step step : fragment.steps) {
      for (int& number : step.ins) number = numbers[number];
      for (int& number : step.outs) number = numbers[number];
      steps_.push_back(std::move(step));
    }
    for (const int number : fragment.outputs) entries_.push_back(numbers[number]);
  }

  void drop_unused() {
    std::vector<bool> live(machine_.buffers.size(), false);
    for (const int number : machine_.outputs) live[buffer_of(number)] = true;
    std::vector<Step> kept;
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      if (std::none_of(step->outs.begin(), step->outs.end(), [&](int n) { return live[buffer_of(n)]; })) continue;
      for (const int number : step->ins) live[buffer_of(number)] = true;
      kept.push_back(std::move(*step));
    }
    steps_.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

  // Whether a register shows a whole buffer that steps fill, in order.
  bool is_whole(int number) const {
    const Register& shown = machine_.registers[number];
    return shown.offset == 0 && shown.contiguous() &&
           shown.count() * shown.itemsize() == machine_.buffers[shown.buffer].bytes;
  }

  // What calls read and give is in arrays.
  void place_calls() {
    for (const Step& step : steps_) {
      if (step.kind != Kind::call) continue;
      for (const int number : step.ins) {
        Buffer& buffer = machine_.buffers[buffer_of(number)];
        buffer.is_object = true;
        if (buffer.place == Place::arena) buffer.place = Place::array;
        if (buffer.place == Place::array && buffer.like < 0 && is_whole(number)) buffer.like = number;
      }
      for (const int number : step.outs) {
        Buffer& buffer = machine_.buffers[buffer_of(number)];
        buffer.place = Place::called;
        buffer.like = number;
        buffer.is_object = true;
      }
    }
  }

  // A result that steps fill gets an array of its own; if it shows a part of something, it is copied into one.
  void place_outputs() {
    std::vector<bool> is_taken(machine_.buffers.size(), false);
    for (int& number : machine_.outputs) {
      const int at = buffer_of(number);
      Buffer& buffer = machine_.buffers[at];
      buffer.is_object = true;
      if (buffer.place != Place::arena && buffer.place != Place::array) continue;
      if (is_whole(number) && !is_taken[at]) {
        is_taken[at] = true;
        buffer.place = Place::array;
        buffer.like = number;
      } else {
        number = copied(number);
        is_taken.push_back(true);
      }
    }
  }

  // A register with a copy of another one's elements.
  int copied(int number) {
    Register result = machine_.registers[number];
    result.buffer = static_cast<int>(machine_.buffers.size());
    result.offset = 0;
    npy_intp stride = result.itemsize();
    for (std::size_t d = result.shape.size(); d-- > 0; stride *= result.shape[d]) result.strides[d] = stride;
    const int added = static_cast<int>(machine_.registers.size());
    machine_.buffers.push_back(
        {.place = Place::array, .bytes = result.count() * result.itemsize(), .like = added, .is_object = true});
    machine_.registers.push_back(std::move(result));
    steps_.push_back({.kind = Kind::copy, .outs = {added}, .ins = {number}});
    return added;
  }

  // The elements of the largest operand.
  npy_intp most_elements(const Step& step) const {
    npy_intp most = 0;
    for (const auto* numbers : {&step.ins, &step.outs}) {
      for (const int number : *numbers) most = std::max(most, machine_.registers[number].count());
    }
    return most;
  }

  void find_actions() {
    for (int first = 0; first < static_cast<int>(steps_.size());) {
      const int length = chain_length(machine_.registers, steps_, first);
      starts_.push_back(first);
      // A chain of one step serves where several threads are to compute it.
      is_chain_.push_back(length > 1 || (length == 1 && most_elements(steps_[first]) >= kShared));
      first += std::max(length, 1);
    }
    starts_.push_back(static_cast<int>(steps_.size()));
  }

  // An action that nothing waits for runs as soon as it can: its inputs are in cache then, and the gradients that an
  // optimizer takes are not kept until the last of them is there.
  void bring_forward() {
    const int actions = static_cast<int>(starts_.size()) - 1;
    std::vector<int> written(machine_.buffers.size(), -1), used(machine_.buffers.size(), -1);  // by which action, last
    std::vector<int> waits_for(actions, -1);  // the last action that has to come before
    std::vector<bool> is_free(actions, true);
    for (int action = 0; action < actions; ++action) {
      const auto wait_for = [&](int other) {
        if (other < 0 || other == action) return;
        waits_for[action] = std::max(waits_for[action], other);
        is_free[other] = false;
      };
      for (int at = starts_[action]; at < starts_[action + 1]; ++at) {
        for (const int number : steps_[at].ins) wait_for(written[buffer_of(number)]);
        for (const int number : steps_[at].outs) wait_for(used[buffer_of(number)]);
        for (const int number : steps_[at].ins) used[buffer_of(number)] = action;
        for (const int number : steps_[at].outs) used[buffer_of(number)] = written[buffer_of(number)] = action;
      }
    }
    std::vector<std::pair<int, int>> order;  // (the action behind which one runs, its number)
    for (int action = 0; action < actions; ++action) {
      const bool moves = is_free[action] && waits_for[action] >= 0;
      order.emplace_back(moves ? waits_for[action] : action, action);
    }
    std::sort(order.begin(), order.end());
    std::vector<Step> steps;
    std::vector<int> starts;
    std::vector<bool> is_chain;
    for (const auto& [_, action] : order) {
      starts.push_back(static_cast<int>(steps.size()));
      is_chain.push_back(is_chain_[action]);
      for (int at = starts_[action]; at < starts_[action + 1]; ++at) steps.push_back(std::move(steps_[at]));
    }
    starts.push_back(static_cast<int>(steps.size()));
    steps_ = std::move(steps);
    starts_ = std::move(starts);
    is_chain_ = std::move(is_chain);
  }

  void find_lifetimes() {
    begins_.assign(machine_.buffers.size(), kNever);
    ends_.assign(machine_.buffers.size(), -1);
    for (int action = 0; action + 1 < static_cast<int>(starts_.size()); ++action) {
      for (int at = starts_[action]; at < starts_[action + 1]; ++at) {
        for (const auto* numbers : {&steps_[at].ins, &steps_[at].outs}) {
          for (const int number : *numbers) {
            begins_[buffer_of(number)] = std::min(begins_[buffer_of(number)], action);
            ends_[buffer_of(number)] = action;
          }
        }
      }
    }
    for (const int number : machine_.outputs) ends_[buffer_of(number)] = kNever;
  }

  void build() {
    const int actions = static_cast<int>(starts_.size()) - 1;
    std::vector<std::vector<int>> beginning(actions), ending(actions);
    for (int at = 0; at < static_cast<int>(machine_.buffers.size()); ++at) {
      if (begins_[at] == kNever) continue;
      beginning[begins_[at]].push_back(at);
      if (ends_[at] != kNever) ending[ends_[at]].push_back(at);
    }
    for (int at = 0; at < actions; ++at) {
      Action action{.kind = steps_[starts_[at]].kind, .at = 0};
      std::set<int> inside;
      const int count = starts_[at + 1] - starts_[at];
      for (const int buffer : beginning[at]) {
        const Place place = machine_.buffers[buffer].place;
        if (place == Place::array) action.made.push_back(buffer);
        if (place != Place::arena) continue;
        if (is_chain_[at] && ends_[buffer] == at) {
          inside.insert(buffer);
        } else {
          machine_.buffers[buffer].offset = reserve(machine_.buffers[buffer].bytes);
        }
      }
      add(action, at, count, inside);
      for (const int buffer : ending[at]) {
        const Place place = machine_.buffers[buffer].place;
        if (place == Place::array || place == Place::called) action.ended.push_back(buffer);
        if (place == Place::arena && begins_[buffer] <= at && !(is_chain_[at] && begins_[buffer] == at)) {
          release(machine_.buffers[buffer].offset, machine_.buffers[buffer].bytes);
        }
      }
      machine_.actions.push_back(std::move(action));
    }
  }

  void add(Action& action, int at, int count, const std::set<int>& inside) {
    const Step& step = steps_[starts_[at]];
    npy_intp work = most_elements(step);
    if (is_chain_[at]) {
      action.kind = Kind::chain;
      action.at = static_cast<int>(machine_.chains.size());
      machine_.chains.push_back(chain_of(machine_.registers, &step, count, inside));
      Chain& chain = machine_.chains.back();
      chain.scratch = reserve(chain.scratch_bytes);
      release(chain.scratch, chain.scratch_bytes);
      work *= count;
    } else if (step.kind == Kind::reduce) {
      action.at = static_cast<int>(machine_.reductions.size());
      machine_.reductions.push_back(reduction_of(machine_.registers, step));
    } else if (step.kind == Kind::product) {
      action.at = static_cast<int>(machine_.products.size());
      machine_.products.push_back(product_of(machine_.registers, step));
      work *= machine_.products.back().core[1];
    } else if (step.kind == Kind::call) {
      action.at = static_cast<int>(machine_.calls.size());
      const bool is_last_use = !step.ins.empty() && ends_[buffer_of(step.ins[0])] == at;
      machine_.calls.push_back({step.payload, step.flags, step.outs, step.ins, is_last_use});
    } else {
      action.kind = Kind::loop;
      action.at = static_cast<int>(machine_.loops.size());
      machine_.loops.push_back(loop_of_step(machine_.registers, step));
      work *= std::max(1, step.flags);
    }
    require(step.kind == Kind::call || action.kind == Kind::chain || has_loop(action), "there is no loop for a step");
    action.is_long = step.kind == Kind::call || work > kLong;
  }

  bool has_loop(const Action& action) const {
    if (action.kind == Kind::reduce) return machine_.reductions[action.at].loop.found.function != nullptr;
    if (action.kind == Kind::product) return machine_.products[action.at].loop.found.function != nullptr;
    return machine_.loops[action.at].found.function != nullptr;
  }

  // The first place in the arena with so many bytes that nobody needs.
  npy_intp reserve(npy_intp bytes) {
    bytes = rounded(bytes);
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second < bytes) continue;
      const auto [offset, size] = *gap;
      gaps_.erase(gap);
      if (size > bytes) gaps_[offset + bytes] = size - bytes;
      return offset;
    }
    if (!gaps_.empty() && gaps_.rbegin()->first + gaps_.rbegin()->second == machine_.arena) {
      const npy_intp offset = gaps_.rbegin()->first;
      gaps_.erase(std::prev(gaps_.end()));
      machine_.arena = offset + bytes;
      return offset;
    }
    const npy_intp offset = machine_.arena;
    machine_.arena += bytes;
    return offset;
  }

  void release(npy_intp offset, npy_intp bytes) {
    bytes = rounded(bytes);
    if (bytes == 0) return;
    auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = gaps_.erase(next);
    }
    if (next != gaps_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
      std::prev(next)->second += bytes;
    } else {
      gaps_[offset] = bytes;
    }
  }

  static npy_intp rounded(npy_intp bytes) { return (bytes + kLine - 1) / kLine * kLine; }

  Machine machine_;
  std::vector<int> entries_;
  std::vector<Step> steps_;
  std::vector<int> starts_;         // the first step of each action, and the end
  std::vector<bool> is_chain_;      // for each action
  std::vector<int> begins_, ends_;  // the first and the last action that needs a buffer
  std::map<npy_intp, npy_intp> gaps_;
};

}  // namespace

Machine joined(std::vector<Register> inputs, const std::vector<Part>& parts, const std::vector<int>& outputs) {
  return Plan(std::move(inputs), parts, outputs).finished();
}

}  // namespace weft
