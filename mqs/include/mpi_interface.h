/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The message queue interface between a debugger and the debugger library of an MPI: binary compatible with version 1.13 of
 * the header of this name. Assertions at the end fix the points in which documents and practice differ. */
#ifndef MPI_INTERFACE_H
#define MPI_INTERFACE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MQS_INTERFACE_COMPATIBILITY 2
/* The name in the documents. */
#define mqs_interface_version MQS_INTERFACE_COMPATIBILITY
#define MQS_INVALID_PROCESS (-1)

typedef unsigned long mqs_taddr_t; /* an address of the target */
typedef long mqs_tword_t;          /* a long of the target */

/* Opaque types: three of the debugger, two of the library. */
typedef struct mqs_image_ mqs_image;
typedef struct mqs_process_ mqs_process;
typedef struct mqs_type_ mqs_type;
typedef struct _mqs_image_info mqs_image_info;
typedef struct _mqs_process_info mqs_process_info;

/* Results. The documents' mqs_true is mqs_ok and their mqs_false is mqs_end_of_list; neither is a name here. */
enum { mqs_ok = 0, mqs_no_information = 1, mqs_end_of_list = 2, mqs_first_user_code = 100 };

typedef enum { mqs_lang_c = 'c', mqs_lang_cplus = 'C', mqs_lang_f77 = 'f', mqs_lang_f90 = 'F' } mqs_lang_code;
typedef enum { mqs_pending_sends = 0, mqs_pending_receives = 1, mqs_unexpected_messages = 2 } mqs_op_class;
enum mqs_status { mqs_st_pending = 0, mqs_st_matched = 1, mqs_st_complete = 2 };

typedef struct {
    int short_size, int_size, long_size, long_long_size, pointer_size;
} mqs_target_type_sizes;

typedef struct {
    mqs_taddr_t unique_id;
    mqs_tword_t local_rank;
    mqs_tword_t size;
    char name[64];
} mqs_communicator;

typedef struct {
    int status;                       /* enum mqs_status */
    mqs_tword_t desired_local_rank;   /* -1: any */
    mqs_tword_t desired_global_rank;
    int tag_wild;                     /* not 0: any tag */
    mqs_tword_t desired_tag;
    mqs_tword_t desired_length;       /* in bytes */
    int system_buffer;                /* not 0: not the program's */
    mqs_taddr_t buffer;
    /* Of sends, and from mqs_st_matched on. */
    mqs_tword_t actual_local_rank;
    mqs_tword_t actual_global_rank;
    mqs_tword_t actual_tag;
    mqs_tword_t actual_length;        /* in bytes */
    char extra_text[5][64];           /* lines that a debugger prints unchanged */
} mqs_pending_operation;

/* Callbacks: functions that the debugger provides. */
typedef void *(*mqs_malloc_ft)(size_t);
typedef void (*mqs_free_ft)(void *);
typedef void (*mqs_dprints_ft)(const char *);
typedef char *(*mqs_errorstring_ft)(int);
typedef void (*mqs_put_image_info_ft)(mqs_image *, mqs_image_info *);
typedef mqs_image_info *(*mqs_get_image_info_ft)(mqs_image *);
typedef void (*mqs_put_process_info_ft)(mqs_process *, mqs_process_info *);
typedef mqs_process_info *(*mqs_get_process_info_ft)(mqs_process *);
typedef struct {
    mqs_malloc_ft mqs_malloc_fp;
    mqs_free_ft mqs_free_fp;
    mqs_dprints_ft mqs_dprints_fp;
    mqs_errorstring_ft mqs_errorstring_fp;
    mqs_put_image_info_ft mqs_put_image_info_fp;
    mqs_get_image_info_ft mqs_get_image_info_fp;
    mqs_put_process_info_ft mqs_put_process_info_fp;
    mqs_get_process_info_ft mqs_get_process_info_fp;
} mqs_basic_callbacks;

typedef void (*mqs_get_type_sizes_ft)(mqs_process *, mqs_target_type_sizes *);
typedef int (*mqs_find_function_ft)(mqs_image *, char *, mqs_lang_code, mqs_taddr_t *);
typedef int (*mqs_find_symbol_ft)(mqs_image *, char *, mqs_taddr_t *);
typedef mqs_type *(*mqs_find_type_ft)(mqs_image *, char *, mqs_lang_code);
typedef int (*mqs_field_offset_ft)(mqs_type *, char *);
typedef int (*mqs_sizeof_ft)(mqs_type *);
typedef struct {
    mqs_get_type_sizes_ft mqs_get_type_sizes_fp;
    mqs_find_function_ft mqs_find_function_fp;
    mqs_find_symbol_ft mqs_find_symbol_fp;
    mqs_find_type_ft mqs_find_type_fp;
    mqs_field_offset_ft mqs_field_offset_fp;
    mqs_sizeof_ft mqs_sizeof_fp;
} mqs_image_callbacks;

typedef int (*mqs_get_global_rank_ft)(mqs_process *);
typedef mqs_image *(*mqs_get_image_ft)(mqs_process *);
typedef int (*mqs_fetch_data_ft)(mqs_process *, mqs_taddr_t, int, void *);
typedef void (*mqs_target_to_host_ft)(mqs_process *, const void *, void *, int);
typedef struct {
    mqs_get_global_rank_ft mqs_get_global_rank_fp;
    mqs_get_image_ft mqs_get_image_fp;
    mqs_fetch_data_ft mqs_fetch_data_fp;
    mqs_target_to_host_ft mqs_target_to_host_fp;
} mqs_process_callbacks;

/* Functions that the library provides. */
void mqs_setup_basic_callbacks(const mqs_basic_callbacks *);
const char *mqs_version_string(void);
int mqs_version_compatibility(void);
int mqs_dll_taddr_width(void);
const char *mqs_dll_error_string(int);

int mqs_setup_image(mqs_image *, const mqs_image_callbacks *);
int mqs_image_has_queues(mqs_image *, char **);
int mqs_destroy_image_info(mqs_image_info *);

int mqs_setup_process(mqs_process *, const mqs_process_callbacks *);
int mqs_process_has_queues(mqs_process *, char **);
int mqs_destroy_process_info(mqs_process_info *);

int mqs_update_communicator_list(mqs_process *);
int mqs_setup_communicator_iterator(mqs_process *);
int mqs_get_communicator(mqs_process *, mqs_communicator *);
int mqs_get_comm_group(mqs_process *, int *);
int mqs_next_communicator(mqs_process *);

int mqs_setup_operation_iterator(mqs_process *, int);
int mqs_next_operation(mqs_process *, mqs_pending_operation *);

/* Extensions: the rank in MPI_COMM_WORLD or -1; the number of calls of a collective on the current communicator, and of those
 * in progress. The collectives: 0 Barrier, Bcast, Allgather, Allgatherv, Allreduce, Alltoall, Alltoallv, Reduce_scatter, Reduce,
 * Gather, Gatherv, Scan, Scatter, 13 Scatterv. */
int mqs_get_global_rank(mqs_process *);
int mqs_get_comm_coll_state(mqs_process *, int, int *, int *);

/* Extensions of rmpi's library (its mqs_version_string begins with "rmpi "), for mqs_setup_operation_iterator: pending operations
 * of the communicator other than sends and receives, that is, nonblocking collectives and blocking calls without a listed
 * request (probes, collectives, MPI_Finalize), described by extra_text; and persistent receives that are not started. The three
 * queues above contain messages only. */
enum { mqs_rmpi_other_operations = 100, mqs_rmpi_inactive_receives = 101 };

#ifdef __cplusplus
}
#define MQS_ASSERT static_assert
#else
#define MQS_ASSERT _Static_assert
#endif

MQS_ASSERT(sizeof(mqs_taddr_t) == sizeof(void *), "an address of the target is one of a host of its kind");
#if __SIZEOF_POINTER__ == 8
MQS_ASSERT(sizeof(mqs_target_type_sizes) == 20, "five int");
MQS_ASSERT(sizeof(mqs_communicator) == 88, "mqs_communicator");
MQS_ASSERT(offsetof(mqs_communicator, name) == 24, "mqs_communicator");
MQS_ASSERT(sizeof(mqs_pending_operation) == 416, "mqs_pending_operation");
MQS_ASSERT(offsetof(mqs_pending_operation, tag_wild) == 24, "mqs_pending_operation");
MQS_ASSERT(offsetof(mqs_pending_operation, buffer) == 56, "mqs_pending_operation");
MQS_ASSERT(offsetof(mqs_pending_operation, actual_local_rank) == 64, "mqs_pending_operation");
MQS_ASSERT(offsetof(mqs_pending_operation, extra_text) == 96, "mqs_pending_operation");
MQS_ASSERT(sizeof(mqs_basic_callbacks) == 64, "eight callbacks, mqs_dprints_fp the third");
MQS_ASSERT(offsetof(mqs_basic_callbacks, mqs_dprints_fp) == 16, "mqs_basic_callbacks");
MQS_ASSERT(sizeof(mqs_image_callbacks) == 48, "six callbacks, mqs_field_offset_fp the fifth");
MQS_ASSERT(offsetof(mqs_image_callbacks, mqs_field_offset_fp) == 32, "mqs_image_callbacks");
MQS_ASSERT(sizeof(mqs_process_callbacks) == 32, "mqs_process_callbacks");
#endif
#undef MQS_ASSERT

#endif
