# The end of an installation: writes the list of its files to PREFIX/share/moed/installed-files (datadir), and removes what the list of
# the installation before has and this one has not. Names are relative to the prefix where they can be. install_manifest.txt of the build
# folder is no such list: an installation into another prefix overwrites it.
if(CMAKE_INSTALL_COMPONENT OR CMAKE_INSTALL_LOCAL_ONLY) # not all files
  return()
endif()
cmake_path(ABSOLUTE_PATH datadir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE)
set(before "$ENV{DESTDIR}${datadir}/moed/installed-files")
set(files "")
foreach(path IN LISTS CMAKE_INSTALL_MANIFEST_FILES ITEMS "${datadir}/moed/installed-files")
  cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX "${path}" NORMALIZE inside)
  if(inside)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  endif()
  list(APPEND files "${path}")
endforeach()
list(SORT files)
list(REMOVE_DUPLICATES files)

if(EXISTS "${before}")
  file(STRINGS "${before}" old)
  list(REMOVE_ITEM old ${files})
  foreach(path IN LISTS old)
    cmake_path(ABSOLUTE_PATH path BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE)
    if(EXISTS "$ENV{DESTDIR}${path}" OR IS_SYMLINK "$ENV{DESTDIR}${path}")
      message(STATUS "Removing, of the installation before: $ENV{DESTDIR}${path}")
      file(REMOVE "$ENV{DESTDIR}${path}")
    endif()
  endforeach()
  file(REMOVE "${before}") # file(INSTALL) leaves one of the same second
endif()
list(JOIN files "\n" text)
file(WRITE "${scratch}/installed-files" "${text}\n")
file(INSTALL "${scratch}/installed-files" DESTINATION "${datadir}/moed")
