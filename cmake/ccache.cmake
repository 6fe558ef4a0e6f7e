# Compilers run through ccache where it is installed: a second checkout or preset of the same sources
# builds in seconds. MOED_CCACHE=OFF, or a launcher of one's own, leaves it out.
option(MOED_CCACHE "Compile through ccache where it is installed" ON)
find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
foreach(language C CXX)
  if(MOED_CCACHE AND CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${CCACHE})
  endif()
endforeach()
