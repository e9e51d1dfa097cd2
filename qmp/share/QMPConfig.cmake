# SPDX-License-Identifier: MIT OR Apache-2.0
# find_package(QMP) gives the targets QMP::qmp and QMP::mpi, and the variable QMP_MPI.
get_filename_component(_qmp_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(QMP_MPI ON)
set(QMP_INCLUDE_DIRS "${_qmp_prefix}/include")
if(NOT TARGET QMP::mpi)
  add_library(QMP::mpi SHARED IMPORTED)
  set_target_properties(QMP::mpi PROPERTIES
    IMPORTED_LOCATION "${_qmp_prefix}/lib/libmpi_abi.so"
    IMPORTED_SONAME "libmpi_abi.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${_qmp_prefix}/include")
endif()
if(NOT TARGET QMP::qmp)
  add_library(QMP::qmp SHARED IMPORTED)
  set_target_properties(QMP::qmp PROPERTIES
    IMPORTED_LOCATION "${_qmp_prefix}/lib/libqmp.so"
    IMPORTED_SONAME "libqmp.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_qmp_prefix}/include"
    INTERFACE_LINK_LIBRARIES QMP::mpi)
endif()
set(QMP_LIBRARIES QMP::qmp)
unset(_qmp_prefix)
