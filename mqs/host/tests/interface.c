// SPDX-License-Identifier: MIT OR Apache-2.0
// MQS-002..030: all declarations of the header, printed by a program compiled with it, and compared with the binary interface that
// debuggers have been built with for twenty years.
#include <mpi_interface.h>
#include <stdio.h>

#ifdef __cplusplus
#define SAME(value, expected) static_assert((value) == (expected), #value)
#else
#define SAME(value, expected) _Static_assert((value) == (expected), #value)
#endif

// MQS-002, MQS-003: of the size of the target's long and of its addresses.
SAME(sizeof(mqs_tword_t), sizeof(long));
SAME(sizeof(mqs_taddr_t), sizeof(void *));
// One is signed, the other is not.
SAME((mqs_tword_t)-1 < 0, 1);
SAME((mqs_taddr_t)-1 > 0, 1);
// MQS-004..008
SAME(sizeof(((mqs_target_type_sizes *)0)->short_size), sizeof(int));
SAME(offsetof(mqs_target_type_sizes, short_size), 0);
SAME(offsetof(mqs_target_type_sizes, int_size), 4);
SAME(offsetof(mqs_target_type_sizes, long_size), 8);
SAME(offsetof(mqs_target_type_sizes, long_long_size), 12);
SAME(offsetof(mqs_target_type_sizes, pointer_size), 16);
// MQS-009..013: only pointers are passed, each of a distinct type.
struct kinds {
    mqs_image *image;
    mqs_process *process;
    mqs_type *type;
    mqs_image_info *image_info;
    mqs_process_info *process_info;
};
SAME(sizeof(struct kinds), 5 * sizeof(void *));
// MQS-014..017
SAME(mqs_lang_c, 'c');
SAME(mqs_lang_cplus, 'C');
SAME(mqs_lang_f77, 'f');
SAME(mqs_lang_f90, 'F');
// MQS-018..020
SAME(mqs_pending_sends, 0);
SAME(mqs_pending_receives, 1);
SAME(mqs_unexpected_messages, 2);
// MQS-021
SAME(MQS_INTERFACE_COMPATIBILITY, 2);
SAME(mqs_interface_version, 2);
// MQS-022..024
SAME(mqs_st_pending, 0);
SAME(mqs_st_matched, 1);
SAME(mqs_st_complete, 2);
// MQS-025..028; MQS-030: the documents' mqs_true is mqs_ok, their mqs_false mqs_end_of_list.
SAME(mqs_ok, 0);
SAME(mqs_no_information, 1);
SAME(mqs_end_of_list, 2);
SAME(mqs_first_user_code, 100);
// MQS-029
SAME(MQS_INVALID_PROCESS, -1);

// MQS-034, MQS-047
SAME(sizeof(((mqs_communicator *)0)->name), 64);
SAME(sizeof(((mqs_pending_operation *)0)->extra_text), 5 * 64);
SAME(sizeof(((mqs_pending_operation *)0)->extra_text[0]), 64);

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define MEMBER(type, member) printf("%s.%s %zu\n", #type, #member, offsetof(type, member))

int main(void)
{
    SIZE(mqs_communicator);
    MEMBER(mqs_communicator, unique_id);
    MEMBER(mqs_communicator, local_rank);
    MEMBER(mqs_communicator, size);
    MEMBER(mqs_communicator, name);
    SIZE(mqs_pending_operation);
    MEMBER(mqs_pending_operation, status);
    MEMBER(mqs_pending_operation, desired_local_rank);
    MEMBER(mqs_pending_operation, desired_global_rank);
    MEMBER(mqs_pending_operation, tag_wild);
    MEMBER(mqs_pending_operation, desired_tag);
    MEMBER(mqs_pending_operation, desired_length);
    MEMBER(mqs_pending_operation, system_buffer);
    MEMBER(mqs_pending_operation, buffer);
    MEMBER(mqs_pending_operation, actual_local_rank);
    MEMBER(mqs_pending_operation, actual_global_rank);
    MEMBER(mqs_pending_operation, actual_tag);
    MEMBER(mqs_pending_operation, actual_length);
    MEMBER(mqs_pending_operation, extra_text);
    SIZE(mqs_basic_callbacks);
    MEMBER(mqs_basic_callbacks, mqs_malloc_fp);
    MEMBER(mqs_basic_callbacks, mqs_free_fp);
    MEMBER(mqs_basic_callbacks, mqs_dprints_fp);
    MEMBER(mqs_basic_callbacks, mqs_errorstring_fp);
    MEMBER(mqs_basic_callbacks, mqs_put_image_info_fp);
    MEMBER(mqs_basic_callbacks, mqs_get_image_info_fp);
    MEMBER(mqs_basic_callbacks, mqs_put_process_info_fp);
    MEMBER(mqs_basic_callbacks, mqs_get_process_info_fp);
    SIZE(mqs_image_callbacks);
    MEMBER(mqs_image_callbacks, mqs_get_type_sizes_fp);
    MEMBER(mqs_image_callbacks, mqs_find_function_fp);
    MEMBER(mqs_image_callbacks, mqs_find_symbol_fp);
    MEMBER(mqs_image_callbacks, mqs_find_type_fp);
    MEMBER(mqs_image_callbacks, mqs_field_offset_fp);
    MEMBER(mqs_image_callbacks, mqs_sizeof_fp);
    SIZE(mqs_process_callbacks);
    MEMBER(mqs_process_callbacks, mqs_get_global_rank_fp);
    MEMBER(mqs_process_callbacks, mqs_get_image_fp);
    MEMBER(mqs_process_callbacks, mqs_fetch_data_fp);
    MEMBER(mqs_process_callbacks, mqs_target_to_host_fp);
    return 0;
}
