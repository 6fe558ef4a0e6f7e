# Everything that moed links, from Debian's packages. A missing one is named with the package to install.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

pkg_check_modules(PROTOBUFC REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson) # package libjansson-dev
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd) # package libmicrohttpd-dev
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp) # package libseccomp-dev
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing) # package liburing-dev
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
pkg_check_modules(EDIT IMPORTED_TARGET libedit) # package libedit-dev: editing and history in `moed chat`
pkg_check_modules(NCURSES IMPORTED_TARGET ncursesw) # package libncurses-dev: `moed top`
set(MOED_GLPK AUTO CACHE STRING "moed-replay's policy optimal, which needs GLPK (GPL 3): AUTO (where it is found, in the build folder alone), ON (installed, too), OFF")
set_property(CACHE MOED_GLPK PROPERTY STRINGS AUTO ON OFF)
if(MOED_GLPK STREQUAL "OFF")
  unset(GLPK_LIBRARY CACHE)
else() # package libglpk-dev
  find_library(GLPK_LIBRARY glpk)
  find_path(GLPK_INCLUDE_DIR glpk.h)
  if(MOED_GLPK STREQUAL "ON" AND NOT (GLPK_LIBRARY AND GLPK_INCLUDE_DIR))
    message(FATAL_ERROR "MOED_GLPK is ON, but GLPK is not found: install libglpk-dev")
  endif()
endif()
find_package(nng CONFIG REQUIRED) # package libnng-dev
find_program(PROTOC_C protoc-c) # package protobuf-c-compiler
if(NOT PROTOC_C)
  message(FATAL_ERROR "protoc-c not found: install protobuf-c-compiler")
endif()
