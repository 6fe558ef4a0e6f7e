# The end of an installation: writes the list of its files to PREFIX/share/moed/installed-files (datadir), and removes what the list of
# the installation before has and this one has not. Names are relative to the prefix where they can be. install_manifest.txt of the build
# folder is no such list: an installation into another prefix overwrites it.
cmake_policy(VERSION 3.25) # cmake_install.cmake sets none
if(CMAKE_INSTALL_COMPONENT OR CMAKE_INSTALL_LOCAL_ONLY) # not all files
  return()
endif()

# Without `..` and a slash at the end, as the names in the list. cmake_install.cmake has made "/" an empty prefix.
cmake_path(NORMAL_PATH CMAKE_INSTALL_PREFIX OUTPUT_VARIABLE prefix)
string(REGEX REPLACE "(.)/$" "\\1" prefix "${prefix}")
if(prefix STREQUAL "")
  set(prefix "/")
endif()

# The path in `out` relative to the prefix if it lies there, else whole.
function(name_of path out)
  cmake_path(NORMAL_PATH path)
  cmake_path(IS_PREFIX prefix "${path}" inside)
  if(inside)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${prefix}")
  endif()
  set(${out} "${path}" PARENT_SCOPE)
endfunction()

# Where the file of a name is, through DESTDIR and links of folders: one file has one place, however it is spelled.
function(place_of name out)
  cmake_path(ABSOLUTE_PATH name BASE_DIRECTORY "${prefix}" NORMALIZE)
  cmake_path(GET name PARENT_PATH folder)
  cmake_path(GET name FILENAME file)
  file(REAL_PATH "$ENV{DESTDIR}${folder}" folder)
  set(${out} "${folder}/${file}" PARENT_SCOPE)
endfunction()

cmake_path(ABSOLUTE_PATH datadir BASE_DIRECTORY "${prefix}" NORMALIZE)
set(before "$ENV{DESTDIR}${datadir}/moed/installed-files")
set(files "")
foreach(path IN LISTS CMAKE_INSTALL_MANIFEST_FILES ITEMS "${datadir}/moed/installed-files")
  name_of("${path}" name)
  list(APPEND files "${name}")
endforeach()
list(SORT files)
list(REMOVE_DUPLICATES files)

if(EXISTS "${before}")
  file(STRINGS "${before}" old)
  list(REMOVE_ITEM old ${files})
  set(places "")
  if(old)
    foreach(name IN LISTS files)
      place_of("${name}" place)
      list(APPEND places "${place}")
    endforeach()
  endif()
  foreach(name IN LISTS old)
    place_of("${name}" place)
    if(NOT place IN_LIST places AND (EXISTS "${place}" OR IS_SYMLINK "${place}"))
      message(STATUS "Removing, of the installation before: ${place}")
      file(REMOVE "${place}")
    endif()
  endforeach()
  file(REMOVE "${before}") # file(INSTALL) leaves one of the same second
endif()
list(JOIN files "\n" text)
file(WRITE "${scratch}/installed-files" "${text}\n")
file(INSTALL "${scratch}/installed-files" DESTINATION "${datadir}/moed")
