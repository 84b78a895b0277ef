# What the cross-compilations for Orin share.
#
# CUDA_TARGET   the target's CUDA: a folder with include/ and lib/ (or lib64/) for aarch64
# CROSS_PREFIX  of the compilers, e.g. aarch64-linux-gnu-
# SYSROOT       the board's file system, if its libraries are to be used
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CUDA_TARGET CROSS_PREFIX SYSROOT ORINPORT_KERNELS)

foreach(name CUDA_TARGET CROSS_PREFIX SYSROOT)
  if(NOT DEFINED ${name} AND DEFINED ENV{ORINPORT_${name}})
    set(${name} $ENV{ORINPORT_${name}})
  endif()
endforeach()
if(NOT CROSS_PREFIX)
  set(CROSS_PREFIX ${DEFAULT_CROSS_PREFIX})
endif()
if(NOT CUDA_TARGET)
  set(CUDA_TARGET ${DEFAULT_CUDA_TARGET})
endif()

set(CMAKE_CXX_COMPILER ${CROSS_PREFIX}g++)
set(CMAKE_CUDA_HOST_COMPILER ${CROSS_PREFIX}g++)
if(SYSROOT)
  set(CMAKE_SYSROOT ${SYSROOT})
endif()

# nvcc runs here, its libraries are the target's.
foreach(folder lib lib64)
  if(EXISTS ${CUDA_TARGET}/${folder}/libcudart_static.a)
    set(cuda_target_library ${CUDA_TARGET}/${folder})
  endif()
endforeach()
if(cuda_target_library)
  set(CMAKE_CUDA_FLAGS_INIT "-I${CUDA_TARGET}/include -L${cuda_target_library}")
  set(CUDA_INCLUDE ${CUDA_TARGET}/include CACHE PATH "" FORCE)
  set(CUDA_cudart_static_LIBRARY ${cuda_target_library}/libcudart_static.a CACHE FILEPATH "" FORCE)
  set(CUDA_CUDART ${cuda_target_library}/libcudart_static.a CACHE FILEPATH "" FORCE)
elseif(NOT DEFINED ORINPORT_KERNELS OR ORINPORT_KERNELS)
  message(FATAL_ERROR "CUDA_TARGET (or ORINPORT_CUDA_TARGET in the environment) must name the target's CUDA, with "
                      "lib/libcudart_static.a for aarch64; '${CUDA_TARGET}' has none.")
endif()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
