# Finds a CUDA toolkit: headers (needed) and nvcc (for the examples and tests written in CUDA C++).
# Looked for in CUDA_HOME, /usr/local/cuda, then build/cuda, where tools/setup/install puts
# NVIDIA's own packages when there is no toolkit.
#
# Defines: target lull::cuda_headers, LULL_CUDA_ROOT, LULL_NVCC (empty when there is none),
# LULL_CUDA_STUB (the toolkit's libcuda.so stub, empty when there is none).
find_path(LULL_CUDA_INCLUDE cuda.h
  HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include ${CMAKE_SOURCE_DIR}/build/cuda/include
  NO_DEFAULT_PATH)
if(NOT LULL_CUDA_INCLUDE)
  message(FATAL_ERROR "lull: no cuda.h in $CUDA_HOME/include, /usr/local/cuda/include or "
    "build/cuda/include: set CUDA_HOME, or run tools/setup/install")
endif()
get_filename_component(LULL_CUDA_ROOT ${LULL_CUDA_INCLUDE} DIRECTORY)
add_library(lull_cuda_headers INTERFACE)
add_library(lull::cuda_headers ALIAS lull_cuda_headers)
target_include_directories(lull_cuda_headers SYSTEM INTERFACE ${LULL_CUDA_INCLUDE})
find_program(LULL_NVCC nvcc HINTS ${LULL_CUDA_ROOT}/bin NO_DEFAULT_PATH)
find_file(LULL_CUDA_STUB libcuda.so
  HINTS ${LULL_CUDA_ROOT}/lib64/stubs ${LULL_CUDA_ROOT}/lib/stubs NO_DEFAULT_PATH)
