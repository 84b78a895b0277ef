# DRIVE OS: the toolchain and the target file system of its SDK.
#
# DRIVE_TOOLCHAIN  prefix of its compilers, e.g. .../toolchains/aarch64--glibc--stable-2022.03-1/bin/aarch64-linux-
if(NOT DEFINED DRIVE_TOOLCHAIN AND DEFINED ENV{DRIVE_TOOLCHAIN})
  set(DRIVE_TOOLCHAIN $ENV{DRIVE_TOOLCHAIN})
endif()
if(DRIVE_TOOLCHAIN)
  set(DEFAULT_CROSS_PREFIX ${DRIVE_TOOLCHAIN})
else()
  set(DEFAULT_CROSS_PREFIX aarch64-linux-gnu-)
endif()
set(DEFAULT_CUDA_TARGET /usr/local/cuda/targets/aarch64-linux)
include(${CMAKE_CURRENT_LIST_DIR}/aarch64.cmake)
