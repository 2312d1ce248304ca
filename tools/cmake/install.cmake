# cmake --install: the layers as static libraries, users' headers below include/shardgrad/, the programs, and a package
# that find_package(shardgrad) finds, with the targets shardgrad::kernels … shardgrad::models.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The umbrella header has the same name in the tree as in the package: <shardgrad/shardgrad.h>.
configure_file(${PROJECT_SOURCE_DIR}/models/shardgrad.h ${PROJECT_BINARY_DIR}/include/shardgrad/shardgrad.h COPYONLY)
target_include_directories(sg_models PUBLIC
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
set(layers kernels core autograd nn optim dist models)

# How a user finds what a layer links. By its package:
set(package_of_spdlog::spdlog spdlog)
set(package_of_fmt::fmt fmt)
set(package_of_Threads::Threads Threads)
set(package_of_MPI::MPI_CXX "MPI COMPONENTS CXX")
set(package_of_OpenSSL::Crypto "OpenSSL COMPONENTS Crypto")
# By the library alone, where the package would ask for more than a link needs (oneDNN's for OpenCL, a CUDA toolkit):
set(library_of_DNNL::dnnl "DNNL::dnnl dnnl")
set(library_of_CUDA::cudart_static "CUDA::cudart_static cudart_static")

set(packages)
set(libraries)
foreach(layer ${layers})
  get_target_property(links sg_${layer} LINK_LIBRARIES)
  foreach(link ${links})
    if(link MATCHES "^(sg_|\\$<BUILD_INTERFACE|::@)")
      continue()  # another layer, what only the build needs, or CMake's mark of a folder's scope
    endif()
    if(DEFINED library_of_${link})
      list(APPEND libraries "${library_of_${link}}")
      continue()
    endif()
    if(NOT DEFINED package_of_${link})
      message(FATAL_ERROR "install: sg_${layer} links ${link}, whose package isn't listed in tools/cmake/install.cmake")
    endif()
    list(APPEND packages "${package_of_${link}}")
  endforeach()

  install(TARGETS sg_${layer} EXPORT shardgrad ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()

# Headers for users: those that the umbrella header names, and what they include.
set(headers models/shardgrad.h)
set(unread ${headers})
while(unread)
  list(POP_FRONT unread header)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"")
  list(TRANSFORM includes REPLACE "^#include \"(.*)\".*$" "\\1")
  foreach(included ${includes})
    if(NOT included IN_LIST headers)
      list(APPEND headers ${included})
      list(APPEND unread ${included})
    endif()
  endforeach()
endwhile()
list(REMOVE_ITEM headers models/shardgrad.h)  # it stands above the layers
foreach(header ${headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardgrad/${folder})
endforeach()
list(REMOVE_DUPLICATES packages)
list(TRANSFORM packages REPLACE "(.+)" "find_dependency(\\1)" OUTPUT_VARIABLE find_dependencies)
list(JOIN find_dependencies "\n" find_dependencies)
list(REMOVE_DUPLICATES libraries)
list(TRANSFORM libraries REPLACE "(.+)" "shardgrad_find_library(\\1)" OUTPUT_VARIABLE find_libraries)
list(JOIN find_libraries "\n" find_libraries)

install(FILES ${PROJECT_SOURCE_DIR}/models/shardgrad.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardgrad)
install(TARGETS ${SG_PROGRAMS} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT shardgrad NAMESPACE shardgrad:: DESTINATION ${package_dir} FILE shardgrad-targets.cmake)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/shardgrad-config.cmake.in
  ${PROJECT_BINARY_DIR}/shardgrad-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardgrad-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardgrad-config.cmake ${PROJECT_BINARY_DIR}/shardgrad-config-version.cmake
        DESTINATION ${package_dir})
