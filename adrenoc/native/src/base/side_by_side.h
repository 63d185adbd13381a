// Work that is done side by side on threads: builds of kernels.
#pragma once

#include <cstddef>
#include <functional>

namespace adrenoc_runtime {

// How many threads build `count` kernels: at most one a core, and as many compilers as the memory
// that is free now holds.
[[nodiscard]] size_t build_threads(size_t count);

// Does `work` for 0 to count - 1, begun in that order, on at most `threads` threads of which one is
// the caller's.  Of work that throws, nothing later is begun; it is done once more, alone, since
// drivers fail side by side for want of memory where one after the other succeeds, and what
// it throws then is thrown: always for the first that fails, however threads happen to run.
void side_by_side(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace adrenoc_runtime
