# Installs the build to a folder of its own, builds outside/ against that package, runs it, and reads what it prints.
# cmake -D BUILD=<build folder> -D GENERATOR=<its generator> -D COMPILER=<C++ compiler> -P install_test.cmake
cmake_minimum_required(VERSION 3.25)
set(work ${BUILD}/tests/install)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
# What only the sources need is not asked of a user, nor what the libraries' packages want beside themselves.
set(not_needed)
foreach(package nlohmann_json CLI11 CUDAToolkit OpenCL Eigen3 GTest dnnl)
  list(APPEND not_needed -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${work}/build -G ${GENERATOR}  # make may be missing
    -D CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Release
    ${not_needed})
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/outside)
if(NOT output MATCHES "trained")
  message(FATAL_ERROR "the outside program printed:\n${output}")
endif()

# Users have the headers that the umbrella header leads to; an engine's inside isn't among them.
file(GLOB_RECURSE headers RELATIVE ${work}/prefix/include/shardgrad ${work}/prefix/include/shardgrad/*.h)
foreach(header shardgrad.h dist/plan.h nn/block.h core/tensor.h)
  if(NOT header IN_LIST headers)
    message(FATAL_ERROR "${header} is not installed")
  endif()
endforeach()
list(FILTER headers INCLUDE REGEX "^(dist/engines|kernels/cpu|kernels/cuda|models/run)/|autograd/graph.h")
if(headers)
  message(FATAL_ERROR "private headers are installed: ${headers}")
endif()

# Nothing of this machine's source tree may be left in what was installed.
file(GLOB_RECURSE installed ${work}/prefix/lib*/cmake/*)
foreach(file ${installed})
  file(READ ${file} text)
  cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tests)
  cmake_path(GET tests PARENT_PATH source)
  string(FIND "${text}" "${source}" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${file} names the source tree, ${source}")
  endif()
endforeach()
