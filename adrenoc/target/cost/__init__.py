"""What estimates of kernels reckon with: fitted constants, as data by compiler and generation."""
