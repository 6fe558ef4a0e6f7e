# moed_compile_options(target): the warnings and definitions that every target shares.
function(moed_compile_options target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR})
  # _GNU_SOURCE: memfd, pidfd, futex, affinity: moed is a Linux program.
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE MOED_VERSION="${PROJECT_VERSION}")
  # No contraction: arithmetic is defined to the bit; where it fuses it says fmaf().
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpointer-arith -Wshadow -Wvla -Wundef -Wno-unused-parameter
    "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>" -ffp-contract=off -fno-math-errno -fno-strict-aliasing)
  if(MOED_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  # What makes a fault in the code hard to use: tests/system/binaries.sh reads the programs for it.
  if(NOT MOED_SANITIZE AND NOT MOED_FUZZ)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong;-fstack-clash-protection>")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-fcf-protection=full>")
    endif()
    # Fortified calls need an optimising build.
    target_compile_options(${target} PRIVATE
      "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now,-z,noexecstack)
  endif()
  if(MOED_SANITIZE)
    # -g1: lines for the reports; tracking variables through instrumented kernels takes gcc minutes.
    target_compile_options(${target} PRIVATE -fsanitize=${MOED_SANITIZE} -fno-omit-frame-pointer -g1)
    # -O1: at -O2 gcc takes 1.6 times as long for the checks. Warnings that depend on the flow of values differ then: those of a
    # release build count.
    if(NOT MOED_FUZZ)
      target_compile_options(${target} PRIVATE -O1 -Wno-maybe-uninitialized -Wno-format-truncation -Wno-error)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${MOED_SANITIZE})
    # ThreadSanitizer does not model fences. Those of moed order what two processes do, which it does not see either.
    if(MOED_SANITIZE MATCHES thread AND CMAKE_C_COMPILER_ID STREQUAL GNU)
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
  if(MOED_FUZZ) # coverage for libFuzzer; its main() comes only with the fuzz targets
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${target} PUBLIC -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# moed_check_language(language): check_language, again where a compiler was missing the last time: it may be there now.
macro(moed_check_language language)
  include(CheckLanguage)
  if(NOT CMAKE_${language}_COMPILER)
    unset(CMAKE_${language}_COMPILER CACHE)
  endif()
  check_language(${language})
endmacro()

# moed_module(name [ROOMS] [LINK libs...]): the static library moed-NAME of the sources in this folder,
# and with ROOMS of the folders in it.
function(moed_module name)
  cmake_parse_arguments(M "ROOMS" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  if(M_ROOMS)
    file(GLOB rooms CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/*.c)
    list(APPEND sources ${rooms})
  endif()
  list(FILTER sources EXCLUDE REGEX "\\.inc\\.c$") # text that others include
  add_library(moed-${name} STATIC ${sources})
  moed_compile_options(moed-${name})
  target_link_libraries(moed-${name} PUBLIC ${M_LINK})
endfunction()
