// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory from MPI_Alloc_mem: MPI 5.0 section 9.2. Messages from, to and between such memory.
#include "check.h"

enum { TAG = 3 };

static void s9_2_allocate_use_and_free(void)
{
    static const MPI_Aint sizes[] = {1, 8, 100, 4096, 1 << 20, 20 << 20};
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        char *memory = NULL;
        GOOD(MPI_Alloc_mem(sizes[i], MPI_INFO_NULL, &memory));
        CHECK(memory != NULL, "no memory of %ld bytes", (long)sizes[i]);
        CHECK((uintptr_t)memory % 16 == 0, "memory at %p is not aligned", (void *)memory);
        fill(memory, (size_t)sizes[i], (unsigned)i);
        PAYLOAD(memory, (size_t)sizes[i], (unsigned)i);
        GOOD(MPI_Free_mem(memory));
    }
}

static void s9_2_blocks_do_not_overlap(void)
{
    enum { MANY = 200 };
    char *blocks[MANY];
    for (int i = 0; i < MANY; i++) {
        MPI_Alloc_mem(100 + 37 * i, MPI_INFO_NULL, &blocks[i]);
        fill(blocks[i], (size_t)(100 + 37 * i), (unsigned)i);
    }
    for (int i = 0; i < MANY; i += 2)
        MPI_Free_mem(blocks[i]);
    for (int i = 1; i < MANY; i += 2)
        PAYLOAD(blocks[i], (size_t)(100 + 37 * i), (unsigned)i);
    for (int i = 1; i < MANY; i += 2)
        MPI_Free_mem(blocks[i]);
}

static void s9_2_freed_memory_comes_back(void)
{
    for (int i = 0; i < 500; i++) {
        char *memory;
        MPI_Alloc_mem(8 << 20, MPI_INFO_NULL, &memory);
        memory[0] = memory[(8 << 20) - 1] = 1;
        MPI_Free_mem(memory);
    }
}

// Every combination of ordinary and allocated memory at both ends.
static void s9_2_messages_between_all_kinds_of_memory(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    size_t room = (size_t)check_size_max();
    char *plain_out = allocate(room), *plain_in = allocate(room), *special_out, *special_in;
    MPI_Alloc_mem((MPI_Aint)room, MPI_INFO_NULL, &special_out);
    MPI_Alloc_mem((MPI_Aint)room, MPI_INFO_NULL, &special_in);
    for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < check_size_count(); i++) {
            char *out = kind & 1 ? special_out : plain_out, *in = kind & 2 ? special_in : plain_in;
            int bytes = check_sizes[i];
            fill(out, (size_t)bytes, (unsigned)(rank + i));
            memset(in, 0, (size_t)bytes);
            MPI_Sendrecv(out, bytes, MPI_BYTE, right, TAG, in, bytes, MPI_BYTE, left, TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            PAYLOAD(in, (size_t)bytes, (unsigned)(left + i));
        }
    MPI_Free_mem(special_out);
    MPI_Free_mem(special_in);
    free(plain_out);
    free(plain_in);
}

// From the middle of a block, at odd addresses.
static void s9_2_parts_of_a_block(void)
{
    enum { BYTES = 300000 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *block;
    MPI_Alloc_mem(3 * BYTES, MPI_INFO_NULL, &block);
    for (int offset = 0; offset < 4000; offset += 997) {
        char *out = block + offset, *in = block + 2 * BYTES - offset;
        fill(out, BYTES, (unsigned)(rank + offset));
        MPI_Sendrecv(out, BYTES, MPI_BYTE, right, TAG, in, BYTES, MPI_BYTE, left, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        PAYLOAD(in, BYTES, (unsigned)(left + offset));
    }
    MPI_Free_mem(block);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s9_2_allocate_use_and_free);
    RUN(s9_2_blocks_do_not_overlap);
    RUN(s9_2_freed_memory_comes_back);
    RUN(s9_2_messages_between_all_kinds_of_memory);
    RUN(s9_2_parts_of_a_block);
    return finish();
}
