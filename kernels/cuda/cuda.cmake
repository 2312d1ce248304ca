# The CUDA backend: compiled by nvcc where a toolkit is found that can compile, else absent.cpp stands in.
# sg_without_cuda is the reason where it is left out; SG_CUDA says for other folders whether it is there.
set(sg_without_cuda "")
set(SG_CUDA OFF CACHE INTERNAL "Whether the CUDA backend is built")
if(NOT SG_WITH_CUDA)
  set(sg_without_cuda "SG_WITH_CUDA is off")
else()
  find_package(CUDAToolkit 12 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    # check_language compiles a trial program. nvcc need not be on the path.
    if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
      set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
      set(sg_without_cuda "${CUDAToolkit_NVCC_EXECUTABLE} cannot compile a trial program")
    endif()
  else()
    set(sg_without_cuda "no toolkit of version 12 or newer found")
  endif()
endif()

if(sg_without_cuda)
  message(STATUS "shardgrad: CUDA left out (${sg_without_cuda})")
  target_sources(sg_kernels PRIVATE cuda/absent.cpp)
  return()
endif()

set(SG_CUDA ON CACHE INTERNAL "")
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)  # a compiler cache serves nvcc as well
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know nvcc's C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
file(GLOB cuda_sources CONFIGURE_DEPENDS cuda/*.cu)
target_sources(sg_kernels PRIVATE ${cuda_sources} cuda/cublaslt.cpp)
set_target_properties(sg_kernels PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
# As on the CPU, FMAs are written, never contracted. relaxed-constexpr: std::bit_cast in device code.
target_compile_options(sg_kernels PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra>)
set_source_files_properties(${cuda_sources} PROPERTIES COMPILE_DEFINITIONS SG_ISA=cuda)  # the namespace in walk.h
set_source_files_properties(cuda/cublaslt.cpp PROPERTIES
  COMPILE_DEFINITIONS SG_CUBLASLT_LIBRARY="${CUDA_cublasLt_LIBRARY}")
target_include_directories(sg_kernels SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(sg_kernels PRIVATE CUDA::cudart_static)
message(STATUS "shardgrad: CUDA ${CUDAToolkit_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
