// Which models hold memory of devices, over the whole process, and who gives some back.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace adrenoc_runtime {

// One that holds memory of a device.
class Resident {
 public:
  enum class Part {
    kBetween,    // what lies between launches; its next run notes them anew
    kConstants,  // and constants, inputs and a decoder's context; its next run moves them back
  };

  virtual ~Resident() = default;

  // Gives the part back, unless it is at work; whether it did.  With `owes` one that is at work
  // does so when it has ended.
  virtual bool give_up(Part part, bool owes) = 0;
  [[nodiscard]] virtual bool has_constants() const = 0;
};

class Residency {
 public:
  [[nodiscard]] static Residency& global();

  void add(Resident* one);
  // Returns when nobody asks it for memory any more.
  void remove(const Resident* one);

  // The most bytes that all together hold between runs; 0 for no limit.
  void set_budget(uint64_t bytes);
  [[nodiscard]] uint64_t budget();

  // `user` is used now, and will take so many bytes more: those that were used longest ago give up
  // what is beyond the budget.  Others may run meanwhile; they keep what they have.
  void make_room(const Resident* user, uint64_t bytes);
  // All but `user` give up what they can, since the device is full.
  void empty_for(const Resident* user);
  // All give up this part, now or when what they do has ended.
  void trim(Resident::Part part);

  void note_eviction();
  void note_return(double ms);

  struct Facts {
    uint32_t models = 0;
    uint32_t evicted = 0;  // of these: without constants now
    uint64_t budget_bytes = 0;
    uint64_t evictions = 0;
    uint64_t returns = 0;
    double return_ms = 0;  // of all returns
  };
  [[nodiscard]] Facts facts();

 private:
  void shrink_locked(const Resident* user, uint64_t most_bytes);

  std::mutex mutex_;
  std::vector<Resident*> by_use_;  // the one that was used longest ago comes first
  std::mutex facts_mutex_;         // for those who hold a model's lock, under mutex_ or not
  Facts facts_;
};

}  // namespace adrenoc_runtime
