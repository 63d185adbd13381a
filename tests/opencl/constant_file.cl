// What Qualcomm's drivers let waves do with the constant file, for a device that has none: each copy
// first spoils what was there, and its numbers are there no sooner than they are waited for.  The
// file is the buffer that stands for it, so nothing may run beside a work-group.
#define __constant __global
#define QCOM_CLK_CONST_LOAD_SYNC 0
#define qcom_get_physical_sub_group_id() ((uint)(37 + get_group_id(0) + 3 * get_group_id(1) + 5 * get_group_id(2)))
#define qcom_sub_group_constant_load8(file, source, slot, first, count) \
  __global half8* const to_ = (file) + (slot); \
  __global const half8* const from_ = (source) + (first); \
  const int count_ = (count); \
  for (int i_ = 0; i_ < count_; ++i_) to_[i_] = (half8)(NAN)
#define qcom_sub_group_sync(what) \
  for (int i_ = (what); i_ < count_; ++i_) to_[i_] = from_[i_]
