// SPDX-License-Identifier: MIT OR Apache-2.0
// The results of configure of p4est: MPI without MPI-IO, all dimensions, all checks enabled.
#ifndef P4EST_CONFIG_H
#define P4EST_CONFIG_H

#define P4EST_CC "rmpicc"
#define P4EST_CFLAGS ""
#define P4EST_CPP "rmpicc -E"
#define P4EST_CPPFLAGS ""
#define P4EST_LDFLAGS ""
#define P4EST_LIBS ""
#define P4EST_PACKAGE "p4est"
#define P4EST_PACKAGE_STRING "p4est"
#define P4EST_PACKAGE_VERSION "2.2"
#define P4EST_VERSION "2.2"
#define P4EST_VERSION_MAJOR 2
#define P4EST_VERSION_MINOR 2
#define P4EST_VERSION_POINT 0

#define P4EST_ENABLE_BUILD_2D 1
#define P4EST_ENABLE_BUILD_3D 1
#define P4EST_ENABLE_BUILD_P6EST 1
#define P4EST_ENABLE_DEBUG 1
#define P4EST_ENABLE_MPI 1

#define P4EST_HAVE_ARPA_INET_H 1
#define P4EST_HAVE_FSYNC 1
#define P4EST_HAVE_NETINET_IN_H 1
#define P4EST_HAVE_UNISTD_H 1
#define P4EST_HAVE_ZLIB 1

#endif
