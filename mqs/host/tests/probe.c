// SPDX-License-Identifier: MIT OR Apache-2.0
// MQS-048..065: a debugger library that uses every callback of the debugger, as one with debug information does, and reports those
// that do not behave as the interface specifies. Its target is `target.c`. It belongs to no MPI: its lists are the results.
#include <mpi_interface.h>
#include <stdio.h>
#include <string.h>

struct _mqs_image_info {
    const mqs_image_callbacks *calls;
    mqs_image *image;
};

struct _mqs_process_info {
    const mqs_process_callbacks *calls;
    mqs_process *process;
    int communicator, operation;
};

static const mqs_basic_callbacks *basic;
static char wrong[256];
// State of the two allocations, read by the test.
int probe_destroyed;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            snprintf(wrong, sizeof wrong, "line %d: %s", __LINE__, #condition); \
            return mqs_first_user_code; \
        } \
    } while (0)

void mqs_setup_basic_callbacks(const mqs_basic_callbacks *table) { basic = table; }
const char *mqs_version_string(void) { return "probe"; }
int mqs_version_compatibility(void) { return MQS_INTERFACE_COMPATIBILITY; }
int mqs_dll_taddr_width(void) { return sizeof(mqs_taddr_t); }
const char *mqs_dll_error_string(int code) { return code == mqs_first_user_code ? wrong : "no error of the probe"; }

int mqs_setup_image(mqs_image *image, const mqs_image_callbacks *calls)
{
    // MQS-048, MQS-049: memory that can be written and freed; also of size zero, and large.
    char *memory = basic->mqs_malloc_fp(1 << 20);
    CHECK(memory);
    memset(memory, 1, 1 << 20);
    basic->mqs_free_fp(memory);
    basic->mqs_free_fp(NULL);
    // MQS-050: there, or NULL.
    if (basic->mqs_dprints_fp)
        basic->mqs_dprints_fp("the probe has been loaded\n");
    // MQS-051
    CHECK(basic->mqs_errorstring_fp(mqs_first_user_code) && strlen(basic->mqs_errorstring_fp(mqs_first_user_code)) > 0);
    // MQS-052, MQS-053
    CHECK(basic->mqs_get_image_info_fp(image) == NULL);
    mqs_image_info *info = basic->mqs_malloc_fp(sizeof *info);
    CHECK(info);
    info->calls = calls;
    info->image = image;
    basic->mqs_put_image_info_fp(image, info);
    CHECK(basic->mqs_get_image_info_fp(image) == info);
    return mqs_ok;
}

static int types(const mqs_image_callbacks *calls, mqs_image *image)
{
    // MQS-059
    mqs_type *type = calls->mqs_find_type_fp(image, "probe_item_t", mqs_lang_c);
    CHECK(type);
    CHECK(calls->mqs_find_type_fp(image, "probe_item_t", mqs_lang_c) == type);
    CHECK(calls->mqs_find_type_fp(image, "probe_nothing_t", mqs_lang_c) == NULL);
    mqs_type *other = calls->mqs_find_type_fp(image, "struct_tag", mqs_lang_c);
    CHECK(other && other != type);
    // MQS-060, MQS-061: `struct { char kind; long number; }`.
    CHECK(calls->mqs_field_offset_fp(type, "kind") == 0);
    CHECK(calls->mqs_field_offset_fp(type, "number") == 8);
    CHECK(calls->mqs_field_offset_fp(type, "nothing") == -1);
    CHECK(calls->mqs_sizeof_fp(type) == 16);
    CHECK(calls->mqs_sizeof_fp(other) == 4);
    return mqs_ok;
}

int mqs_image_has_queues(mqs_image *image, char **message)
{
    mqs_image_info *info = basic->mqs_get_image_info_fp(image);
    *message = NULL;
    CHECK(info && info->image == image);
    const mqs_image_callbacks *calls = info->calls;
    // MQS-057, MQS-058: there or not; the address is wanted or not.
    mqs_taddr_t function = 0, symbol = 0;
    CHECK(calls->mqs_find_function_fp(image, "probe_function", mqs_lang_c, &function) == mqs_ok && function);
    CHECK(calls->mqs_find_function_fp(image, "probe_function", mqs_lang_c, NULL) == mqs_ok);
    CHECK(calls->mqs_find_function_fp(image, "probe_nothing", mqs_lang_c, NULL) == mqs_no_information);
    CHECK(calls->mqs_find_symbol_fp(image, "probe_item", &symbol) == mqs_ok && symbol && symbol != function);
    CHECK(calls->mqs_find_symbol_fp(image, "probe_item", NULL) == mqs_ok);
    CHECK(calls->mqs_find_symbol_fp(image, "probe_nothing", &symbol) == mqs_no_information);
    return types(calls, image);
}

int mqs_destroy_image_info(mqs_image_info *info)
{
    probe_destroyed += 1;
    basic->mqs_free_fp(info);
    return 0;
}

int mqs_setup_process(mqs_process *process, const mqs_process_callbacks *calls)
{
    // MQS-054, MQS-055
    CHECK(basic->mqs_get_process_info_fp(process) == NULL);
    mqs_process_info *info = basic->mqs_malloc_fp(sizeof *info);
    CHECK(info);
    memset(info, 0, sizeof *info);
    info->calls = calls;
    info->process = process;
    basic->mqs_put_process_info_fp(process, info);
    CHECK(basic->mqs_get_process_info_fp(process) == info);
    return mqs_ok;
}

int mqs_process_has_queues(mqs_process *process, char **message)
{
    mqs_process_info *info = basic->mqs_get_process_info_fp(process);
    *message = NULL;
    CHECK(info && info->process == process);
    // MQS-063
    mqs_image *image = info->calls->mqs_get_image_fp(process);
    mqs_image_info *image_info = basic->mqs_get_image_info_fp(image);
    CHECK(image_info && image_info->image == image);
    // MQS-062: this debugger need not know the rank.
    CHECK(info->calls->mqs_get_global_rank_fp(process) >= MQS_INVALID_PROCESS);
    // MQS-056
    mqs_target_type_sizes sizes[4];
    memset(sizes, 0xff, sizeof sizes);
    image_info->calls->mqs_get_type_sizes_fp(process, sizes);
    CHECK(sizes->short_size == 2 && sizes->int_size == 4 && sizes->long_size == 8);
    CHECK(sizes->long_long_size == 8 && sizes->pointer_size == 8);
    CHECK(sizes[1].short_size == -1);
    return mqs_ok;
}

int mqs_destroy_process_info(mqs_process_info *info)
{
    probe_destroyed += 100;
    basic->mqs_free_fp(info);
    return 0;
}

int mqs_update_communicator_list(mqs_process *process)
{
    mqs_process_info *info = basic->mqs_get_process_info_fp(process);
    const mqs_image_callbacks *calls = basic->mqs_get_image_info_fp(info->calls->mqs_get_image_fp(process))->calls;
    mqs_image *image = info->calls->mqs_get_image_fp(process);
    mqs_taddr_t symbol = 0;
    CHECK(calls->mqs_find_symbol_fp(image, "probe_item", &symbol) == mqs_ok);
    // MQS-064: all bytes of the target's memory, or an error.
    struct {
        char kind;
        long number;
    } item;
    CHECK(info->calls->mqs_fetch_data_fp(process, symbol, sizeof item, &item) == mqs_ok);
    CHECK(item.kind == 'k');
    CHECK(info->calls->mqs_fetch_data_fp(process, 16, sizeof item, &item) == mqs_no_information);
    CHECK(info->calls->mqs_fetch_data_fp(process, symbol, -1, &item) != mqs_ok);
    CHECK(info->calls->mqs_fetch_data_fp(process, symbol, sizeof item, &item) == mqs_ok);
    // MQS-065: from a buffer to another, and in place.
    long number = 0;
    info->calls->mqs_target_to_host_fp(process, &item.number, &number, sizeof number);
    CHECK(number == -12345678901L);
    info->calls->mqs_target_to_host_fp(process, &number, &number, sizeof number);
    CHECK(number == -12345678901L);
    return mqs_ok;
}

int mqs_setup_communicator_iterator(mqs_process *process)
{
    basic->mqs_get_process_info_fp(process)->communicator = 0;
    return mqs_ok;
}

int mqs_get_communicator(mqs_process *process, mqs_communicator *communicator)
{
    CHECK(basic->mqs_get_process_info_fp(process)->communicator < 2);
    communicator->unique_id = 70 + basic->mqs_get_process_info_fp(process)->communicator;
    communicator->local_rank = 1;
    communicator->size = 3;
    strcpy(communicator->name, "probed");
    return mqs_ok;
}

int mqs_get_comm_group(mqs_process *process, int *ranks)
{
    (void)process;
    ranks[0] = 5;
    ranks[1] = 6;
    ranks[2] = MQS_INVALID_PROCESS;
    return mqs_ok;
}

int mqs_next_communicator(mqs_process *process)
{
    return ++basic->mqs_get_process_info_fp(process)->communicator < 2 ? mqs_ok : mqs_end_of_list;
}

int mqs_setup_operation_iterator(mqs_process *process, int class)
{
    basic->mqs_get_process_info_fp(process)->operation = class == mqs_pending_receives ? 0 : 2;
    return class == mqs_unexpected_messages ? mqs_no_information : mqs_ok;
}

int mqs_next_operation(mqs_process *process, mqs_pending_operation *operation)
{
    int number = basic->mqs_get_process_info_fp(process)->operation++;
    if (number >= 2)
        return mqs_end_of_list;
    memset(operation, 0, sizeof *operation);
    operation->status = number ? mqs_st_matched : mqs_st_pending;
    operation->desired_local_rank = number ? 1 : -1;
    operation->desired_global_rank = number ? 6 : -1;
    operation->tag_wild = !number;
    operation->desired_tag = 9;
    operation->desired_length = 1000;
    operation->buffer = 0x1234;
    operation->actual_local_rank = 1;
    operation->actual_tag = 9;
    operation->actual_length = 8;
    strcpy(operation->extra_text[0], "first line");
    strcpy(operation->extra_text[4], "last line");
    return mqs_ok;
}
