// A decoder that takes in tokens and makes new ones, each fed to the next step on the device.
//
// The host only gives commands, some steps ahead, and reads tokens as they come.  How many tokens
// the caches hold is a number on the device, so that one recording of a step serves every token.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/decoder_states.h"
#include "generate/sampler.h"
#include "launch/bound_run.h"

namespace adrenoc_runtime::opencl {

// Fewer words are followed by anything, and more come too seldom.
constexpr size_t kMostWords = 3;
constexpr size_t kFewestWords = 2;
constexpr int64_t kLongestPause = 15;

struct GuessCount {
  int64_t runs = 0;    // that checked guesses
  int64_t tokens = 0;  // that were guessed, and were right
};

class Guesses {
 public:
  // At most `most` tokens that may follow `text`; none where nothing is known, or where guesses
  // were wrong: then the next are made after 1, 3, 7, 15 tokens.
  [[nodiscard]] std::vector<int64_t> after(const std::vector<int64_t>& text, size_t most) {
    std::vector<int64_t> guessed;
    if (left_ > 0) {
      --left_;
      return guessed;
    }
    for (size_t words = kMostWords; words >= kFewestWords; --words) {
      if (text.size() <= words) continue;
      const auto last = text.end() - static_cast<std::ptrdiff_t>(words);
      const auto found = std::find_end(text.begin(), text.end() - 1, last, text.end());
      if (found == text.end() - 1) continue;
      auto at = static_cast<size_t>(found - text.begin()) + words;
      // Behind the end a text goes on as was guessed.
      for (; guessed.size() < most; ++at) {
        guessed.push_back(at < text.size() ? text[at] : guessed[at - text.size()]);
      }
      break;
    }
    return guessed;
  }
  // How many of those were right.
  void tell(size_t right) {
    ++count_.runs;
    count_.tokens += static_cast<int64_t>(right);
    pause_ = right == 0 ? std::min(2 * pause_ + 1, kLongestPause) : 0;
    left_ = pause_;
  }

  [[nodiscard]] const GuessCount& count() const { return count_; }

 private:
  GuessCount count_;
  int64_t pause_ = 0;  // tokens without a guess behind one that was wrong
  int64_t left_ = 0;   // of these
};

// What a run of so many tokens takes, as places among its arguments, and gives, among its results.
struct LoopEntry {
  int64_t tokens = 0;
  size_t ids = 0;
  size_t past = 0;
  std::vector<size_t> states;
  // Those of them that every token changes as a whole, as those of recurrent layers.
  std::vector<size_t> recurrent{};
  // Rows that caches of a window hold beyond it, which is how far they can be rewound as they are;
  // 0 where all hold every row.
  int64_t slack = 0;
  // What the model picks after each token: of the entry of one, and of others where it `picks`.
  size_t picked = 0;
  bool picks = false;
  // Of the entry of one token alone; `vocabulary` is how many logits it gives.
  size_t logits = 0;
  int64_t vocabulary = 0;
};

struct GenerateWish {
  int64_t most = 0;  // tokens; 0 for as many as there is room for
  std::vector<int64_t> ends;
  Sampling sampling;
  std::vector<int64_t> suppressed;        // never come
  std::vector<int64_t> suppressed_first;  // nor first behind a prompt
  bool with_logits = false;
  bool is_constrained = false;  // allow() says before each token which may come
  bool guesses = true;          // where an entry can check them

  // Whether each token waits for the host to have seen the one before.
  [[nodiscard]] bool waits() const { return with_logits || is_constrained; }
};

class TokenLoop {
 public:
  // The caches have `rows` rows.
  TokenLoop(int device_id, Recording recording, int64_t rows);
  ~TokenLoop();

  // All entries share the memory of their states.  The tensors have to stay where they are.
  void add_entry(const LoopEntry& entry, tvm::ffi::Function main,
                 const std::vector<tvm::ffi::AnyView>& arguments);

  // Tokens that the caches hold, and how many they can.
  [[nodiscard]] int64_t length() const { return length_; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] const std::vector<int64_t>& taken() const { return taken_; }
  // The last token that was made, which the caches do not hold yet.
  [[nodiscard]] std::optional<int64_t> pending() const { return pending_; }

  // Fills the caches, in as few runs as the entries allow; where a state is recurrent, in runs of
  // no more tokens than there are.  Throws ValueError where there is no room.
  void take_in(const std::vector<int64_t>& tokens);

  // Begins to make tokens after `token`.  Throws ValueError where there is no room for it.
  void start(int64_t token, const GenerateWish& wish);
  // Which tokens may come next, a bit each, where that was wished for; of those that are not
  // suppressed.
  void allow(const std::vector<uint32_t>& tokens);
  // The next token, as soon as it is there; nothing once it has ended.
  [[nodiscard]] std::optional<int64_t> next();
  // Whether what comes next hangs on what the host does with the last token.
  [[nodiscard]] bool waits() const { return wish_.waits(); }
  // Ends it after the token that next() gave last.
  void stop();
  // Why no more come: "end", a token of `ends`; "most"; "full", of the context; "stopped"; "" while
  // they come.
  [[nodiscard]] const std::string& ended() const { return ended_; }
  // What the last token was picked of; empty where that was not asked for.
  [[nodiscard]] const std::vector<char>& logits() const { return logits_; }

  // Forgets all; what the states hold before is whatever lay in their memory.
  void clear();
  // Forgets all but the first tokens; where a state is recurrent, or rows of a window are gone,
  // takes those in again behind the last checkpoint.  Throws ValueError where there are fewer.
  void rewind(int64_t length);

  // What the states hold, for a loop of the same model, whose context may be longer.
  [[nodiscard]] std::string save();
  [[nodiscard]] size_t saved_bytes() const;
  // Throws ValueError for anything else, and leaves all as it was.
  void restore(const std::string& saved);

  // What guesses have brought since start().
  [[nodiscard]] const GuessCount& guessed() const { return guesses_.count(); }
  // How the last step reached the device.
  [[nodiscard]] LaunchReport report() const;
  // Gives the memory between the launches back.
  void forget();

 private:
  // Steps between two copies of recurrent states: what is taken in again is fewer than twice as
  // many.
  static constexpr int64_t kStepsToCheckpoint = 16;

  struct Entry {
    LoopEntry places;
    std::vector<HeldArgument> arguments;
    std::unique_ptr<BoundRun> run;                   // of several tokens
    std::array<std::unique_ptr<BoundRun>, 3> steps;  // of one, by what ends it (Picking)
    tvm::ffi::Function main;

    [[nodiscard]] const DLTensor& ids() const { return arguments[places.ids].get(); }
    [[nodiscard]] const DLTensor& past() const { return arguments[places.past].get(); }
    [[nodiscard]] std::vector<tvm::ffi::AnyView> views() const;
  };
  struct Ahead {
    std::unique_ptr<std::array<char, 8>> token;
    EventHandle event;
  };

  // How a step ends: it feeds the model's own pick, draws, or draws from changed logits.
  enum Picking { kFeeds, kDraws, kChanges };

  [[nodiscard]] Entry& one_token();
  [[nodiscard]] Picking picking() const;
  void suppress(const std::vector<int64_t>& tokens);
  void write_inputs(const Entry& entry, const int64_t* tokens, size_t count);
  [[nodiscard]] BoundRun& step_run();
  void launch_step();
  [[nodiscard]] Entry* guessing_entry() const;
  void guess(Entry& entry);
  [[nodiscard]] int64_t wait_for(Ahead ahead) const;
  void read_logits(const tvm::ffi::Any& result);
  void finish(const char* reason);
  void drain();
  [[nodiscard]] std::vector<KeptState> states() const;
  [[nodiscard]] std::vector<const DLTensor*> recurrent() const;
  [[nodiscard]] bool is_recurrent() const;
  [[nodiscard]] int64_t slack() const;
  [[nodiscard]] bool has_rows_of(int64_t length) const;
  [[nodiscard]] ContextFill fill() const { return {rows_, length_, pending_, taken_}; }
  [[nodiscard]] Entry& entry_for(size_t left);
  [[nodiscard]] static bool are_cheaper(const Entry& shorter, const Entry& longer, size_t left);
  void run_entry(Entry& entry, const int64_t* tokens, size_t count);
  void go_back(int64_t length);
  void settle();

  const int device_id_;
  Device& device_;
  const Recording recording_;
  const int64_t rows_;
  Sampler sampler_;                              // before the runs, which launch its kernels
  std::vector<std::unique_ptr<Entry>> entries_;  // the fewest tokens first
  int64_t length_ = 0;
  std::optional<int64_t> pending_;
  int64_t written_ = 0;  // rows that ever were: those of a window lie in the places of older ones
  std::vector<int64_t> taken_;  // the tokens that the caches hold
  Checkpoints checkpoints_;
  Guesses guesses_;
  std::deque<int64_t> ready_;  // tokens that were guessed, and the one after them
  bool is_fed_ = false;        // the step's inputs on the device are those of the next one
  bool is_ahead_ = false;      // it holds tokens of steps that were taken back
  GenerateWish wish_;
  // A bit for each token that is not suppressed: next, and from the second on.
  std::vector<uint32_t> allowed_;
  std::vector<uint32_t> usual_;
  int64_t limit_ = 0;  // steps of this start
  int64_t launched_ = 0;
  int64_t given_ = 0;
  std::deque<Ahead> ahead_;
  std::string ended_ = "stopped";
  std::vector<char> logits_;
};

}  // namespace adrenoc_runtime::opencl
