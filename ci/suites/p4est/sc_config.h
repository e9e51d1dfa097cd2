// SPDX-License-Identifier: MIT OR Apache-2.0
// The results of configure of libsc, on which p4est is based: MPI, all checks enabled.
#ifndef SC_CONFIG_H
#define SC_CONFIG_H

#define SC_CC "rmpicc"
#define SC_CFLAGS ""
#define SC_CPP "rmpicc -E"
#define SC_CPPFLAGS ""
#define SC_LDFLAGS ""
#define SC_LIBS ""
#define SC_PACKAGE "libsc"
#define SC_PACKAGE_STRING "libsc"
#define SC_PACKAGE_VERSION "0"
#define SC_VERSION "0"
#define SC_VERSION_MAJOR 0
#define SC_VERSION_MINOR 0
#define SC_VERSION_POINT 0

#define SC_ENABLE_DEBUG 1
#define SC_ENABLE_MPI 1
#define SC_ENABLE_MPICOMMSHARED 1
#define SC_ENABLE_MPITHREAD 1
#define SC_ENABLE_USE_REALLOC 1

#define SC_HAVE_SIGNAL_H 1
#define SC_HAVE_STRTOL 1
#define SC_HAVE_STRTOLL 1
#define SC_HAVE_SYS_TIME_H 1
#define SC_HAVE_SYS_TYPES_H 1
#define SC_HAVE_TIME_H 1
#define SC_HAVE_UNISTD_H 1
#define SC_HAVE_ZLIB 1

#define SC_SIZEOF_INT 4
#define SC_SIZEOF_LONG 8
#define SC_SIZEOF_LONG_LONG 8
#define SC_SIZEOF_UNSIGNED_LONG 8
#define SC_SIZEOF_UNSIGNED_LONG_LONG 8
#define SC_SIZEOF_VOID_P 8

#endif
