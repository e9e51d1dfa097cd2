/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * QMP, the message passing interface of lattice QCD codes: the functions of the document QMP 2.0 (29 Oct 2004) and of libqmp 2.5.
 *
 * Five functions differ between the two. They have libqmp's signatures, or with -DQMP_API=2004 those of the document:
 * QMP_declare_logical_topology, QMP_layout_grid, QMP_abort, QMP_declare_strided_array_msgmem and
 * QMP_get_logical_coordinates_from.
 */
#ifndef QMP_H
#define QMP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef QMP_API
#define QMP_API 2
#endif
#if QMP_API != 2 && QMP_API != 2004
#error "QMP_API is 2 (today's library, the default) or 2004 (the document's own signatures)"
#endif

#if defined(__GNUC__)
#define QMP_PRINTS_(text, first) __attribute__((format(printf, text, first)))
#else
#define QMP_PRINTS_(text, first)
#endif

/* Constants. */
#define QMP_TRUE 1
#define QMP_FALSE 0
#define QMP_ALIGN_ANY 0
#define QMP_ALIGN_DEFAULT 64
#define QMP_MEM_NONCACHE 0x01
#define QMP_MEM_COMMS 0x02
#define QMP_MEM_FAST 0x04
#define QMP_MEM_DEFAULT (QMP_MEM_COMMS | QMP_MEM_FAST)

/* Types. The structures are incomplete: pointers to them are handles. */
typedef int QMP_bool_t;
typedef struct QMP_mem_struct QMP_mem_t;
typedef struct QMP_mem_struct QMP_mem_struct_t;
typedef struct QMP_msgmem_struct *QMP_msgmem_t;
typedef struct QMP_msghandle_struct *QMP_msghandle_t;
typedef struct QMP_comm_struct *QMP_comm_t;
typedef void (*QMP_binary_func)(void *inout, void *in);

typedef enum QMP_ictype {
    QMP_SWITCH = 0,
    QMP_GRID = 1,
    QMP_MESH = 1,
    QMP_FATTREE = 2
} QMP_ictype_t;

typedef enum QMP_thread_level {
    QMP_THREAD_SINGLE = 0,
    QMP_THREAD_FUNNELED = 1,
    QMP_THREAD_SERIALIZED = 2,
    QMP_THREAD_MULTIPLE = 3
} QMP_thread_level_t;

typedef enum QMP_clear_to_send {
    QMP_CTS_DISABLED = -1,
    QMP_CTS_NOT_READY = 0,
    QMP_CTS_READY = 1
} QMP_clear_to_send_t;

typedef enum QMP_status {
    QMP_SUCCESS = 0,
    QMP_ERROR = 0x1001,
    QMP_NOT_INITED = 0x1002,
    QMP_RTENV_ERR = 0x1003,
    QMP_CPUINFO_ERR = 0x1004,
    QMP_NODEINFO_ERR = 0x1005,
    QMP_NOMEM_ERR = 0x1006,
    QMP_MEMSIZE_ERR = 0x1007,
    QMP_HOSTNAME_ERR = 0x1008,
    QMP_INITSVC_ERR = 0x1009,
    QMP_TOPOLOGY_EXISTS = 0x100a,
    QMP_CH_TIMEOUT = 0x100b,
    QMP_NOTSUPPORTED = 0x100c,
    QMP_SVC_BUSY = 0x100d,
    QMP_BAD_MESSAGE = 0x100e,
    QMP_INVALID_ARG = 0x100f,
    QMP_INVALID_TOPOLOGY = 0x1010,
    QMP_NONEIGHBOR_INFO = 0x1011,
    QMP_MEMSIZE_TOOBIG = 0x1012,
    QMP_BAD_MEMORY = 0x1013,
    QMP_NO_PORTS = 0x1014,
    QMP_NODE_OUTRANGE = 0x1015,
    QMP_CHDEF_ERR = 0x1016,
    QMP_MEMUSED_ERR = 0x1017,
    QMP_INVALID_OP = 0x1018,
    QMP_TIMEOUT = 0x1019,
    QMP_MAX_STATUS = 0x101a
} QMP_status_t;

/* Initialisation and finalisation. */
QMP_status_t QMP_init_msg_passing(int *argc, char ***argv, QMP_thread_level_t required,
                                  QMP_thread_level_t *provided);
QMP_bool_t QMP_is_initialized(void);
void QMP_finalize_msg_passing(void);
void QMP_abort(int error_code);
void QMP_abort_string(int error_code, char *message);

/* Communicators. */
QMP_comm_t QMP_comm_get_allocated(void);
QMP_status_t QMP_comm_set_allocated(QMP_comm_t comm);
QMP_comm_t QMP_comm_get_job(void);
QMP_status_t QMP_comm_set_job(QMP_comm_t comm);
QMP_comm_t QMP_comm_get_default(void);
QMP_status_t QMP_comm_set_default(QMP_comm_t comm);
QMP_status_t QMP_comm_split(QMP_comm_t comm, int color, int key, QMP_comm_t *newcomm);
QMP_status_t QMP_comm_free(QMP_comm_t comm);
int QMP_comm_get_number_of_colors(QMP_comm_t comm);
int QMP_comm_get_color(QMP_comm_t comm);
int QMP_comm_get_key(QMP_comm_t comm);
/* Both return a pointer to an MPI_Comm, which is valid until the communicator is freed. */
QMP_status_t QMP_get_hidden_comm(QMP_comm_t comm, void **hiddencomm);
QMP_status_t QMP_get_mpi_comm(QMP_comm_t comm, void **mpicomm);

/* The allocated machine. */
QMP_ictype_t QMP_get_msg_passing_type(void);
int QMP_get_number_of_nodes(void);
int QMP_comm_get_number_of_nodes(QMP_comm_t comm);
int QMP_get_node_number(void);
int QMP_comm_get_node_number(QMP_comm_t comm);
QMP_bool_t QMP_is_primary_node(void);
QMP_bool_t QMP_comm_is_primary_node(QMP_comm_t comm);
int QMP_get_allocated_number_of_dimensions(void);
const int *QMP_get_allocated_dimensions(void);
const int *QMP_get_allocated_coordinates(void);
int QMP_get_number_of_jobs(void);
int QMP_get_job_number(void);
int QMP_get_number_of_job_geometry_dimensions(void);
const int *QMP_get_job_geometry(void);
int QMP_io_node(int node);
int QMP_master_io_node(void);

/* The logical machine. */
QMP_status_t QMP_declare_logical_topology(const int dims[], int ndim);
QMP_status_t QMP_comm_declare_logical_topology(QMP_comm_t comm, const int dims[], int ndim);
QMP_status_t QMP_declare_logical_topology_map(const int dims[], int ndim, const int map[], int mapdim);
QMP_status_t QMP_comm_declare_logical_topology_map(QMP_comm_t comm, const int dims[], int ndim,
                                                   const int map[], int mapdim);
QMP_bool_t QMP_logical_topology_is_declared(void);
QMP_bool_t QMP_comm_logical_topology_is_declared(QMP_comm_t comm);
int QMP_get_logical_number_of_dimensions(void);
int QMP_comm_get_logical_number_of_dimensions(QMP_comm_t comm);
const int *QMP_get_logical_dimensions(void);
const int *QMP_comm_get_logical_dimensions(QMP_comm_t comm);
const int *QMP_get_logical_coordinates(void);
const int *QMP_comm_get_logical_coordinates(QMP_comm_t comm);
/* The caller frees the coordinates with free(). */
int *QMP_get_logical_coordinates_from(int node);
int *QMP_comm_get_logical_coordinates_from(QMP_comm_t comm, int node);
void QMP_get_logical_coordinates_from2(int coords[], int node);
void QMP_comm_get_logical_coordinates_from2(QMP_comm_t comm, int coords[], int node);
int QMP_get_node_number_from(const int coordinates[]);
int QMP_comm_get_node_number_from(QMP_comm_t comm, const int coordinates[]);

/* The problem. */
QMP_status_t QMP_layout_grid(const int dims[], int ndim);
const int *QMP_get_subgrid_dimensions(void);
int QMP_get_number_of_subgrid_sites(void);

/* Memory. */
QMP_mem_t *QMP_allocate_memory(size_t nbytes);
QMP_mem_t *QMP_allocate_aligned_memory(size_t nbytes, size_t alignment, int flags);
void *QMP_get_memory_pointer(QMP_mem_t *mem);
void QMP_free_memory(QMP_mem_t *mem);
QMP_msgmem_t QMP_declare_msgmem(const void *mem, size_t nbytes);
QMP_msgmem_t QMP_declare_strided_msgmem(void *base, size_t blksize, int nblocks, ptrdiff_t stride);
QMP_msgmem_t QMP_declare_strided_array_msgmem(void *base[], size_t blksize[], int nblocks[],
                                              ptrdiff_t stride[], int num);
QMP_msgmem_t QMP_declare_indexed_msgmem(void *base, int blocklen[], int index[], int elemsize,
                                        int count);
void QMP_free_msgmem(QMP_msgmem_t m);

/* Channels. */
QMP_msghandle_t QMP_declare_receive_relative(QMP_msgmem_t m, int axis, int dir, int priority);
QMP_msghandle_t QMP_comm_declare_receive_relative(QMP_comm_t comm, QMP_msgmem_t m, int axis, int dir,
                                                  int priority);
QMP_msghandle_t QMP_declare_send_relative(QMP_msgmem_t m, int axis, int dir, int priority);
QMP_msghandle_t QMP_comm_declare_send_relative(QMP_comm_t comm, QMP_msgmem_t m, int axis, int dir,
                                               int priority);
QMP_msghandle_t QMP_declare_receive_from(QMP_msgmem_t m, int rem_node_rank, int priority);
QMP_msghandle_t QMP_comm_declare_receive_from(QMP_comm_t comm, QMP_msgmem_t m, int rem_node_rank,
                                              int priority);
QMP_msghandle_t QMP_declare_send_to(QMP_msgmem_t m, int rem_node_rank, int priority);
QMP_msghandle_t QMP_comm_declare_send_to(QMP_comm_t comm, QMP_msgmem_t m, int rem_node_rank,
                                         int priority);
QMP_msghandle_t QMP_declare_multiple(QMP_msghandle_t msgh[], int num);
QMP_msghandle_t QMP_declare_send_recv_pairs(QMP_msghandle_t msgh[], int num);
void QMP_free_msghandle(QMP_msghandle_t msgh);
QMP_status_t QMP_change_address(QMP_msghandle_t msg, void *addr);
QMP_status_t QMP_change_address_multiple(QMP_msghandle_t msg, void *addr[], int naddr);
QMP_status_t QMP_clear_to_send(QMP_msghandle_t mh, QMP_clear_to_send_t cts);
QMP_status_t QMP_start(QMP_msghandle_t h);
QMP_bool_t QMP_is_complete(QMP_msghandle_t h);
QMP_status_t QMP_wait(QMP_msghandle_t h);
QMP_status_t QMP_wait_all(QMP_msghandle_t h[], int num);

/* Global operations, in place, on all nodes. */
QMP_status_t QMP_barrier(void);
QMP_status_t QMP_comm_barrier(QMP_comm_t comm);
QMP_status_t QMP_broadcast(void *buffer, size_t nbytes);
QMP_status_t QMP_comm_broadcast(QMP_comm_t comm, void *buffer, size_t nbytes);
QMP_status_t QMP_sum_int(int *value);
QMP_status_t QMP_comm_sum_int(QMP_comm_t comm, int *value);
QMP_status_t QMP_sum_uint64_t(uint64_t *value);
QMP_status_t QMP_comm_sum_uint64_t(QMP_comm_t comm, uint64_t *value);
QMP_status_t QMP_sum_float(float *value);
QMP_status_t QMP_comm_sum_float(QMP_comm_t comm, float *value);
QMP_status_t QMP_sum_double(double *value);
QMP_status_t QMP_comm_sum_double(QMP_comm_t comm, double *value);
QMP_status_t QMP_sum_long_double(long double *value);
QMP_status_t QMP_comm_sum_long_double(QMP_comm_t comm, long double *value);
QMP_status_t QMP_sum_double_extended(double *value);
QMP_status_t QMP_comm_sum_double_extended(QMP_comm_t comm, double *value);
QMP_status_t QMP_sum_float_array(float value[], int length);
QMP_status_t QMP_comm_sum_float_array(QMP_comm_t comm, float value[], int length);
QMP_status_t QMP_sum_double_array(double value[], int length);
QMP_status_t QMP_comm_sum_double_array(QMP_comm_t comm, double value[], int length);
QMP_status_t QMP_sum_long_double_array(long double value[], int length);
QMP_status_t QMP_comm_sum_long_double_array(QMP_comm_t comm, long double value[], int length);
QMP_status_t QMP_max_float(float *value);
QMP_status_t QMP_comm_max_float(QMP_comm_t comm, float *value);
QMP_status_t QMP_max_double(double *value);
QMP_status_t QMP_comm_max_double(QMP_comm_t comm, double *value);
QMP_status_t QMP_min_float(float *value);
QMP_status_t QMP_comm_min_float(QMP_comm_t comm, float *value);
QMP_status_t QMP_min_double(double *value);
QMP_status_t QMP_comm_min_double(QMP_comm_t comm, double *value);
QMP_status_t QMP_xor_ulong(unsigned long *value);
QMP_status_t QMP_comm_xor_ulong(QMP_comm_t comm, unsigned long *value);
QMP_status_t QMP_comm_alltoall(QMP_comm_t comm, char *recvbuffer, char *sendbuffer, int count);
QMP_status_t QMP_binary_reduction(void *lbuffer, size_t buflen, QMP_binary_func bfunc);
QMP_status_t QMP_comm_binary_reduction(QMP_comm_t comm, void *lbuffer, size_t buflen,
                                       QMP_binary_func bfunc);

/* Errors. */
const char *QMP_error_string(QMP_status_t code);
QMP_status_t QMP_get_error_number(QMP_msghandle_t mh);
const char *QMP_get_error_string(QMP_msghandle_t mh);

/* Output, profiling and version. */
int QMP_verbose(int level);
int QMP_profcontrol(int level);
int QMP_printf(const char *format, ...) QMP_PRINTS_(1, 2);
int QMP_fprintf(FILE *stream, const char *format, ...) QMP_PRINTS_(2, 3);
int QMP_info(const char *format, ...) QMP_PRINTS_(1, 2);
int QMP_error(const char *format, ...) QMP_PRINTS_(1, 2);
double QMP_time(void);
void QMP_reset_total_qmp_time(void);
double QMP_get_total_qmp_time(void);
const char *QMP_version_str(void);
int QMP_version_int(void);

/* With the document's signatures. A NULL base terminates the strided arrays. */
QMP_bool_t qmp2004_declare_logical_topology(const int *dimensions, int ndims);
QMP_bool_t qmp2004_layout_grid(int latticeDimensions[], int ndims);
void qmp2004_abort(void);
QMP_msgmem_t qmp2004_declare_strided_array_msgmem(void *base[], size_t blksize[], int nblocks[],
                                                  ptrdiff_t stride[]);
const int *qmp2004_get_logical_coordinates_from(int node_number);

#if QMP_API == 2004
#define QMP_declare_logical_topology qmp2004_declare_logical_topology
#define QMP_layout_grid qmp2004_layout_grid
#define QMP_abort qmp2004_abort
#define QMP_declare_strided_array_msgmem qmp2004_declare_strided_array_msgmem
#define QMP_get_logical_coordinates_from qmp2004_get_logical_coordinates_from
#endif

#ifdef __cplusplus
}
#endif

/* Used by programs that come with libqmp. */
#define _QMP_UNUSED_ARGUMENT(x) ((void)(x))

#endif
