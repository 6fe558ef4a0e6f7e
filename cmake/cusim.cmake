# tests/cusim: the CUDA runtime and its kernels on the host, for tests. Needs g++ beside gcc (their sanitizers have to
# agree); MOED_CUSIM says whether it is there.
set(MOED_CUSIM OFF)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT MOED_FUZZ)
  moed_check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      set(MOED_CUSIM ON)
    endif()
  endif()
endif()
if(NOT MOED_CUSIM)
  message(STATUS "No CUDA simulation (tests/cusim): it needs gcc and g++ (package g++), and is not fuzzed")
endif()

# moed_cuda_sim_options(target): moed_compile_options and what sources on cusim need beside.
function(moed_cuda_sim_options target)
  moed_compile_options(${target})
  target_compile_features(${target} PRIVATE cxx_std_17)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_definitions(${target} PRIVATE MOED_CUSIM)
  # -O2 whatever the build type: kernels are slow enough. Unknown pragmas: "#pragma unroll" is nvcc's.
  target_compile_options(${target} PRIVATE -O2 -Wno-unknown-pragmas)
endfunction()

# moed_cuda_sim_races(target): the kernels among its sources report their accesses to shared memory
# (tests/cusim/races.cpp), by the calls of -fsanitize=thread, whose library is not linked. Not in builds with sanitizers.
# They take two to three times as long; MOED_CUSIM_RACES=ON does it for all kernels.
option(MOED_CUSIM_RACES "Look for races in the shared memory of every kernel on tests/cusim" OFF)
function(moed_cuda_sim_races target)
  if(NOT MOED_SANITIZE)
    target_compile_definitions(${target} PRIVATE CUSIM_RACES)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0;-Wno-tsan>")
  endif()
endfunction()

# moed_cuda_sim_library(name [STATIC|SHARED|MODULE] SOURCES ... [LINK libs...]): a library of .cu, .cpp and .c sources
# on cusim. Not to be called in a folder that gives the same .cu files to nvcc: a source has one language a folder.
function(moed_cuda_sim_library name)
  cmake_parse_arguments(L "STATIC;SHARED;MODULE" "" "SOURCES;LINK" ${ARGN})
  set(kind STATIC)
  if(L_SHARED)
    set(kind SHARED)
  elseif(L_MODULE)
    set(kind MODULE)
  endif()
  add_library(${name} ${kind} ${L_SOURCES})
  moed_cuda_sim_sources(${L_SOURCES})
  moed_cuda_sim_options(${name})
  if(MOED_CUSIM_RACES)
    moed_cuda_sim_races(${name})
  endif()
  target_link_libraries(${name} PUBLIC moed-cusim ${L_LINK})
endfunction()

# moed_cuda_sim_sources(files...): the .cu files among them are C++ in the targets of this folder.
function(moed_cuda_sim_sources)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  if(kernels)
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  endif()
endfunction()
