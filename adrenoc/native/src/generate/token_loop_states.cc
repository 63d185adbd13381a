// What a token loop keeps between its steps, and how it goes back.
#include <tvm/ffi/error.h>

#include <algorithm>
#include <utility>

#include "generate/token_loop.h"

namespace adrenoc_runtime::opencl {

// Recurrent states are put back to a checkpoint, and take in again what lies behind it; all is taken in
// again where rows are gone that it would see.
void TokenLoop::go_back(int64_t length) {
  is_ahead_ = false;
  checkpoints_.forget_beyond(length);
  const std::vector<int64_t> kept(taken_.begin(), taken_.begin() + length);
  length_ = is_recurrent() ? checkpoints_.put_back(recurrent(), length) : 0;
  if (length_ > 0 && !has_rows_of(length_)) length_ = 0;
  if (length_ == 0) clear_states(recurrent());
  if (length_ == 0) written_ = 0;
  taken_.resize(static_cast<size_t>(length_));
  while (length_ < length) {
    const auto left = static_cast<size_t>(length - length_);
    // What was made one by one is made so again, to the same bits.
    const bool is_near = length_ > 0 && left < static_cast<size_t>(2 * kStepsToCheckpoint);
    Entry& entry = is_near ? one_token() : entry_for(left);
    run_entry(entry, kept.data() + length_, std::min(left, size_t(entry.places.tokens)));
  }
}

// Takes back what steps that ran ahead have put into recurrent states.
void TokenLoop::settle() {
  if (is_ahead_) go_back(length_);
}

void TokenLoop::clear() {
  drain();
  for (const KeptState& state : states()) clear_states({state.tensor});
  checkpoints_.forget_beyond(0);
  taken_.clear();
  written_ = 0;
  is_ahead_ = false;
  pending_.reset();
  length_ = 0;
}

void TokenLoop::rewind(int64_t length) {
  drain();
  if (length < 0 || length > length_) {
    TVM_FFI_THROW(ValueError) << "rewind to " << length << " tokens, expected 0 to the " << length_
                              << " that are there";
  }
  if (length == 0) {
    clear();
    return;
  }
  const bool is_there = !is_recurrent() || (!is_ahead_ && length == length_);
  if (!is_there || !has_rows_of(length)) go_back(length);
  taken_.resize(static_cast<size_t>(length));
  pending_.reset();
  length_ = length;
}

std::vector<KeptState> TokenLoop::states() const {
  std::vector<KeptState> states;
  if (entries_.empty()) return states;
  const Entry& entry = *entries_.front();
  const std::vector<size_t>& whole = entry.places.recurrent;
  for (const size_t place : entry.places.states) {
    const bool is_whole = std::find(whole.begin(), whole.end(), place) != whole.end();
    states.push_back({&entry.arguments[place].get(), is_whole});
  }
  return states;
}

std::vector<const DLTensor*> TokenLoop::recurrent() const {
  std::vector<const DLTensor*> found;
  for (const KeptState& state : states()) {
    if (state.is_recurrent) found.push_back(state.tensor);
  }
  return found;
}

bool TokenLoop::is_recurrent() const { return !recurrent().empty(); }

int64_t TokenLoop::slack() const {
  return entries_.empty() ? 0 : entries_.front()->places.slack;
}

// Whether the rows are there that tokens behind so many see, where a cache holds those of a window.
bool TokenLoop::has_rows_of(int64_t length) const {
  return slack() == 0 || written_ - length <= slack();
}

std::string TokenLoop::save() {
  drain();
  settle();
  return save_context(states(), fill());
}

size_t TokenLoop::saved_bytes() const { return opencl::saved_bytes(states(), fill()); }

void TokenLoop::restore(const std::string& saved) {
  drain();
  ContextFill fill = restore_context(saved, states(), rows_);
  length_ = fill.length;
  pending_ = fill.pending;
  taken_ = std::move(fill.taken);
  written_ = length_ + slack();  // at most: else it could not have gone on
  is_ahead_ = false;
  checkpoints_.forget_beyond(0);
}

}  // namespace adrenoc_runtime::opencl
