# Jetson (JetPack): Debian's or NVIDIA's aarch64-linux-gnu compilers, CUDA's cross packages for aarch64-linux.
set(DEFAULT_CROSS_PREFIX aarch64-linux-gnu-)
set(DEFAULT_CUDA_TARGET /usr/local/cuda/targets/aarch64-linux)
include(${CMAKE_CURRENT_LIST_DIR}/aarch64.cmake)
