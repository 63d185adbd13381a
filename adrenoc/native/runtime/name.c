/* libtvm_ffi.so beside libadrenoc_runtime.so holds nothing: it only makes the loader look there. */
