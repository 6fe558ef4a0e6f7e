# The default architectures of the CUDA module, by versions of the toolkit. usage: cmake -D SOURCE=DIR -P cuda_architectures.cmake
include(${SOURCE}/cmake/cuda_architectures.cmake)
foreach(case "11.4.152 70;75;80;86" "11.8.89 70;75;80;86;90" "12.0.1 70;75;80;86;90" "12.8.61 70;75;80;86;90;120"
    "12.9.86 70;75;80;86;90;120" "13.0.88 all-major")
  string(REGEX MATCH "^([^ ]+) (.*)$" unused "${case}")
  set(version ${CMAKE_MATCH_1})
  set(wanted "${CMAKE_MATCH_2}")
  moed_cuda_architectures(${version} found)
  if(NOT "${found}" STREQUAL "${wanted}")
    message(FATAL_ERROR "CUDA ${version}: ${found}, not ${wanted}")
  endif()
endforeach()
