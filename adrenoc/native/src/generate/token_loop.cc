#include "generate/token_loop.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/typed_function.h"
#include "launch/cancelling.h"
#include "launch/copy.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

// Steps whose commands the device has before the first of them has ended.
constexpr size_t kStepsAhead = 3;

// One of the tensors that a run gave.
const DLTensor& result_at(const ffi::Any& result, size_t index) {
  if (const auto one = result.as<tvm::runtime::Tensor>()) return *one->operator->();
  const auto* several = result.as<ffi::ArrayObj>();
  if (several == nullptr || index >= several->size()) {
    TVM_FFI_THROW(ValueError) << "a step gives no result " << index;
  }
  // The result holds it.
  return *several->begin()[static_cast<std::ptrdiff_t>(index)]
              .cast<tvm::runtime::Tensor>()
              .operator->();
}

std::vector<char> read_bytes(const DLTensor& from) {
  std::vector<char> bytes(ffi::GetDataSize(from));
  copy_tensor(from, on_host(from, bytes.data()));
  return bytes;
}

// A token of 32 or 64 bits.
int64_t read_token(const char* bytes, DLDataType dtype) {
  int64_t wide = 0;
  int32_t narrow = 0;
  const bool is_wide = dtype.bits == 64;
  std::memcpy(is_wide ? static_cast<void*>(&wide) : &narrow, bytes,
              is_wide ? sizeof(wide) : sizeof(narrow));
  return is_wide ? wide : narrow;
}

void copy_to_device(void* data, DLDataType dtype, size_t count, const DLTensor& to) {
  auto extent = static_cast<int64_t>(count);
  const DLTensor host{data, DLDevice{kDLCPU, 0}, 1, dtype, &extent, nullptr, 0};
  copy_tensor(host, to);
}

}  // namespace

std::vector<ffi::AnyView> TokenLoop::Entry::views() const {
  std::vector<ffi::AnyView> views;
  for (const HeldArgument& argument : arguments) views.push_back(argument.view());
  return views;
}

TokenLoop::TokenLoop(int device_id, Recording recording, int64_t rows)
    : device_id_(device_id),
      device_(device_at(device_id)),
      recording_(recording),
      rows_(rows),
      sampler_(device_),
      checkpoints_(device_) {}

TokenLoop::~TokenLoop() {
  try {
    drain();
  } catch (const ffi::Error&) {
    // A device that failed writes nothing any more.
  }
}

void TokenLoop::add_entry(const LoopEntry& entry, ffi::Function main,
                          const std::vector<ffi::AnyView>& arguments) {
  auto made = std::make_unique<Entry>();
  made->places = entry;
  made->main = std::move(main);
  std::vector<size_t> places = entry.states;  // recurrent ones, too
  places.insert(places.end(), {entry.ids, entry.past});
  if (entry.tokens < 1 ||
      std::any_of(
          places.begin(), places.end(), [&](size_t place) { return place >= arguments.size(); })) {
    TVM_FFI_THROW(ValueError) << "an entry of " << entry.tokens << " tokens with "
                              << arguments.size() << " arguments lacks some";
  }
  for (const ffi::AnyView& argument : arguments) made->arguments.emplace_back(argument);
  const DLTensor& ids = made->ids();
  const DLTensor& past = made->past();
  if (ids.dtype.code != kDLInt || (ids.dtype.bits != 64 && ids.dtype.bits != 32) ||
      ffi::GetDataSize(ids) != static_cast<size_t>(entry.tokens) * ids.dtype.bits / 8 ||
      past.dtype.code != kDLInt || past.dtype.bits != 32 || ffi::GetDataSize(past) != 4) {
    TVM_FFI_THROW(ValueError) << "an entry takes " << entry.tokens
                              << " tokens of int64 or int32 and one length of int32";
  }
  if (entry.tokens > 1) {
    made->run = std::make_unique<BoundRun>(made->main, made->views(), device_id_, recording_);
  }
  const auto is_longer = [](const auto& one, const auto& other) {
    return one->places.tokens < other->places.tokens;
  };
  entries_.insert(std::upper_bound(entries_.begin(), entries_.end(), made, is_longer),
                  std::move(made));
}

TokenLoop::Entry& TokenLoop::one_token() {
  if (entries_.empty() || entries_.front()->places.tokens != 1) {
    TVM_FFI_THROW(ValueError) << "a decoder has to have an entry of one token";
  }
  return *entries_.front();
}

void TokenLoop::write_inputs(const Entry& entry, const int64_t* tokens, size_t count) {
  const DLTensor& ids = entry.ids();
  const auto places = static_cast<size_t>(entry.places.tokens);
  if (ids.dtype.bits == 64) {
    std::vector<int64_t> filled(places, 0);
    std::copy(tokens, tokens + count, filled.begin());
    copy_to_device(filled.data(), ids.dtype, places, ids);
  } else {
    std::vector<int32_t> filled(places, 0);
    std::transform(tokens, tokens + count, filled.begin(),
                   [](int64_t token) { return static_cast<int32_t>(token); });
    copy_to_device(filled.data(), ids.dtype, places, ids);
  }
  auto length = static_cast<int32_t>(length_);
  copy_to_device(&length, entry.past().dtype, 1, entry.past());
}

void TokenLoop::take_in(const std::vector<int64_t>& tokens) {
  drain();
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > rows_ - length_) TVM_FFI_THROW(ValueError) << context_full(length_, rows_, count);
  if (count != 0) settle();
  for (size_t taken = 0; taken < tokens.size();) {
    end_if_cancelled();
    pending_.reset();
    const size_t left = tokens.size() - taken;
    Entry& entry = entry_for(left);
    const size_t now = std::min(left, static_cast<size_t>(entry.places.tokens));
    run_entry(entry, tokens.data() + taken, now);
    taken += now;
  }
}

// The shortest entry that holds so many tokens, or the longest; or the one before it, where runs of
// that are cheaper.  What fills one up would stay in a recurrent state, where the longest that they
// fill serves.
TokenLoop::Entry& TokenLoop::entry_for(size_t left) {
  const bool is_exact = is_recurrent();
  Entry* found = is_exact ? &one_token() : entries_.back().get();
  Entry* shorter = nullptr;
  for (const auto& one : entries_) {
    const auto tokens = static_cast<size_t>(one->places.tokens);
    if (is_exact && tokens <= left) found = one.get();
    if (is_exact) continue;
    if (tokens >= left) {
      found = one.get();
      break;
    }
    shorter = one.get();
  }
  return shorter != nullptr && are_cheaper(*shorter, *found, left) ? *shorter : *found;
}

// Whether runs of a shorter entry take less than one of a longer, which so many tokens fill in
// part.  One of 128 takes as long as 4.6 to 5.5 of 16, one of 512 as 3.6 to 3.8 of 128 (machine
// code of a 660 and a 750, an H100): runs that are half as long are cheaper everywhere.  Below 16
// all take what the weights do.
bool TokenLoop::are_cheaper(const Entry& shorter, const Entry& longer, size_t left) {
  constexpr size_t kLeastTokens = 16;
  const auto tokens = static_cast<size_t>(shorter.places.tokens);
  const size_t filled = (left + tokens - 1) / tokens * tokens;
  return tokens >= kLeastTokens && 2 * filled <= static_cast<size_t>(longer.places.tokens);
}

void TokenLoop::run_entry(Entry& entry, const int64_t* tokens, size_t count) {
  write_inputs(entry, tokens, count);
  if (entry.places.tokens == 1) {
    wish_ = {};
    (void)step_run().run();
  } else {
    (void)entry.run->run();
  }
  written_ = std::max(written_, length_ + entry.places.tokens);
  length_ += static_cast<int64_t>(count);
  taken_.insert(taken_.end(), tokens, tokens + count);
}

TokenLoop::Picking TokenLoop::picking() const {
  const bool suppresses = !wish_.suppressed.empty() || !wish_.suppressed_first.empty();
  if (wish_.is_constrained || suppresses || wish_.sampling.changes_logits()) return kChanges;
  return wish_.sampling.is_greedy() ? kFeeds : kDraws;
}

// The run of one token that is followed by the kernels that pick, or the one that feeds.
BoundRun& TokenLoop::step_run() {
  Entry& entry = one_token();
  const Picking kind = picking();
  std::unique_ptr<BoundRun>& run = entry.steps[kind];
  if (run != nullptr) return *run;
  // What other kinds keep between their launches is memory that this one needs.
  for (const auto& other : entry.steps) {
    if (other != nullptr) other->forget();
  }
  const auto step = packed([this, &entry, kind](ffi::PackedArgs arguments, ffi::Any* result) {
    entry.main.CallPacked(arguments.data(), arguments.size(), result);
    const StepTensors tensors{&result_at(*result, entry.places.picked),
                              &result_at(*result, entry.places.logits), &entry.ids(),
                              &entry.past()};
    if (kind == kFeeds) sampler_.feed(tensors);
    if (kind == kDraws) sampler_.pick(tensors);
    if (kind == kChanges) sampler_.change_and_pick(tensors);
  });
  run = std::make_unique<BoundRun>(step, entry.views(), device_id_, recording_);
  return *run;
}

void TokenLoop::start(int64_t token, const GenerateWish& wish) {
  drain();
  if (length_ >= rows_) TVM_FFI_THROW(ValueError) << context_full(length_, rows_, 1);
  const int64_t vocabulary = one_token().places.vocabulary;
  check_sampling(wish.sampling, vocabulary);
  settle();
  if (is_recurrent()) checkpoints_.take(recurrent(), length_);
  wish_ = wish;
  // What goes on after its own last token is no beginning.
  if (pending_ == token) wish_.suppressed_first.clear();
  logits_.clear();
  guesses_ = {};
  is_fed_ = false;
  if (picking() != kFeeds) sampler_.set(wish_.sampling);
  if (picking() == kChanges) {
    sampler_.set_row(wish_.sampling, taken_, vocabulary);
    allowed_.assign(static_cast<size_t>(vocabulary + 31) / 32, ~uint32_t{0});
    suppress(wish_.suppressed);
    usual_ = allowed_;
    suppress(wish_.suppressed_first);
    sampler_.allow(allowed_);
  }
  limit_ = rows_ - length_;
  if (wish_.most > 0) limit_ = std::min(limit_, wish_.most);
  launched_ = given_ = 0;
  pending_ = token;
  ended_.clear();
}

void TokenLoop::allow(const std::vector<uint32_t>& tokens) {
  if (!wish_.is_constrained || !ended_.empty()) {
    TVM_FFI_THROW(ValueError) << "no tokens are made that somebody constrains";
  }
  std::vector<uint32_t> both = tokens;
  for (size_t i = 0; i < std::min(both.size(), allowed_.size()); ++i) both[i] &= allowed_[i];
  sampler_.allow(both);
}

void TokenLoop::suppress(const std::vector<int64_t>& tokens) {
  for (const int64_t token : tokens) {
    const auto word = static_cast<size_t>(token / 32);
    if (token >= 0 && word < allowed_.size()) allowed_[word] &= ~(uint32_t{1} << (token % 32));
  }
}

std::optional<int64_t> TokenLoop::next() {
  if (!ended_.empty()) return std::nullopt;
  Entry* const guessing = guessing_entry();
  if (guessing != nullptr && ready_.empty()) guess(*guessing);
  int64_t token = 0;
  if (!ready_.empty()) {
    token = ready_.front();
    ready_.pop_front();
  } else {
    // A guess goes by the last token.
    const size_t ahead = wish_.waits() || guessing != nullptr ? 1 : kStepsAhead;
    while (launched_ < limit_ && ahead_.size() < ahead) launch_step();
    Ahead first = std::move(ahead_.front());
    ahead_.pop_front();
    token = wait_for(std::move(first));
  }
  ++given_;
  ++length_;
  taken_.push_back(*pending_);
  pending_ = token;
  const std::vector<int64_t>& ends = wish_.ends;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    finish("end");
  } else if (given_ == limit_) {
    finish(given_ == wish_.most ? "most" : "full");
  }
  return token;
}

// The entry that checks guesses, where any may be made: what is drawn hangs on each token before
// it, and recurrent states take in what is wrong.
TokenLoop::Entry* TokenLoop::guessing_entry() const {
  if (!wish_.guesses || wish_.waits() || picking() != kFeeds || is_recurrent()) return nullptr;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if ((*entry)->places.tokens > 1 && (*entry)->places.picks) return entry->get();
  }
  return nullptr;
}

// Takes in the tokens that may come behind the last one, all in one run, which picks a token after
// each; those are ready up to the first that was not guessed.  Rows of what was wrong are written
// again.
void TokenLoop::guess(Entry& entry) {
  const int64_t tokens = entry.places.tokens;
  if (length_ + tokens > rows_) return;
  taken_.push_back(*pending_);
  const int64_t most = std::min(tokens, limit_ - given_) - 1;
  const std::vector<int64_t> guessed = guesses_.after(taken_, static_cast<size_t>(most));
  taken_.pop_back();
  if (guessed.empty()) return;
  end_if_cancelled();
  std::vector<int64_t> fed{*pending_};
  fed.insert(fed.end(), guessed.begin(), guessed.end());
  write_inputs(entry, fed.data(), fed.size());
  const ffi::Any result = entry.run->run();
  const DLTensor& picks = result_at(result, entry.places.picked);
  const std::vector<char> bytes = read_bytes(picks);
  const size_t each = picks.dtype.bits / 8;
  if ((picks.dtype.bits != 64 && picks.dtype.bits != 32) || bytes.size() < fed.size() * each) {
    TVM_FFI_THROW(ValueError) << "a run does not pick a token of int64 or int32 after each";
  }
  written_ = std::max(written_, length_ + tokens);
  for (size_t i = 0; i < fed.size(); ++i) {
    ready_.push_back(read_token(&bytes[i * each], picks.dtype));
    if (i == guessed.size() || ready_.back() != guessed[i]) break;
  }
  guesses_.tell(ready_.size() - 1);
  launched_ += static_cast<int64_t>(ready_.size());
  is_fed_ = false;
}

void TokenLoop::launch_step() {
  if (!is_fed_) write_inputs(one_token(), &*pending_, 1);
  is_fed_ = true;
  if (is_recurrent() && launched_ > 0 && launched_ % kStepsToCheckpoint == 0) {
    checkpoints_.take(recurrent(), length_ + launched_ - given_);
  }
  const ffi::Any result = step_run().run();
  if (wish_.with_logits) read_logits(result);
  const DLTensor& ids = one_token().ids();
  Ahead ahead{std::make_unique<std::array<char, 8>>(), EventHandle()};
  cl_event event = nullptr;
  {
    // In the queue behind the step and before the next one, which writes another token there.
    const QueueLock queue = device_.lock_queue();
    ADRENOC_CL_CALL(clEnqueueReadBuffer, queue.get(),
                    static_cast<const Descriptor*>(ids.data)->mem(), CL_FALSE, ids.byte_offset,
                    ids.dtype.bits / 8, ahead.token->data(), 0, nullptr, &event);
    ahead.event = EventHandle(event);
    ADRENOC_CL_CALL(clFlush, queue.get());
  }
  ahead_.push_back(std::move(ahead));
  ++launched_;
  if (launched_ == 1 && !wish_.suppressed_first.empty()) {
    allowed_ = usual_;
    sampler_.allow(allowed_);  // in the queue before the second step
  }
  written_ = std::max(written_, length_ + launched_ - given_);
}

int64_t TokenLoop::wait_for(Ahead ahead) const {
  const cl_event event = ahead.event.get();
  try {
    ADRENOC_CL_CALL(clWaitForEvents, 1, &event);
  } catch (const ffi::Error&) {
    // Whether the device still writes there is not known: eight bytes are left to it.
    (void)ahead.token.release();
    throw;
  }
  return read_token(ahead.token->data(), entries_.front()->ids().dtype);
}

void TokenLoop::read_logits(const ffi::Any& result) {
  logits_ = read_bytes(result_at(result, one_token().places.logits));
}

void TokenLoop::finish(const char* reason) {
  ended_ = reason;
  drain();
}

// What runs ahead writes rows that the next tokens write again; recurrent states it leaves ahead.
void TokenLoop::drain() {
  is_ahead_ = is_ahead_ || (launched_ > given_ && is_recurrent());
  launched_ = given_;
  ready_.clear();
  if (ended_.empty()) ended_ = "stopped";
  while (!ahead_.empty()) {
    Ahead first = std::move(ahead_.front());
    ahead_.pop_front();
    (void)wait_for(std::move(first));
  }
}

void TokenLoop::stop() {
  if (ended_.empty()) finish("stopped");
}

LaunchReport TokenLoop::report() const {
  if (entries_.empty()) return {};
  const auto& run = entries_.front()->steps[picking()];
  return run == nullptr ? LaunchReport() : run->report();
}

void TokenLoop::forget() {
  drain();
  checkpoints_.forget();
  for (const auto& entry : entries_) {
    if (entry->run != nullptr) entry->run->forget();
    for (const auto& step : entry->steps) {
      if (step != nullptr) step->forget();
    }
  }
}

// Recurrent states are put back to a checkpoint, and take in again what lies behind it; all is
// taken in again where rows are gone that it would see.
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

int64_t TokenLoop::slack() const { return entries_.empty() ? 0 : entries_.front()->places.slack; }

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
