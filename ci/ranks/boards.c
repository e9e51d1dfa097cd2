// SPDX-License-Identifier: MIT OR Apache-2.0
// Blocking collectives for which an implementation may use shared memory of a communicator: many communicators are
// made, used and freed; sizes are around every limit; blocking and nonblocking calls alternate; some ranks need not
// wait. MPI 5.0 chapters 6 and 7.
#include "check.h"

enum { MANY = 40, LARGEST = 300000, LARGE = 12000 * 64 };

static unsigned char *out, *in;

static unsigned char byte_of(int from, int size_of_it, int i)
{
    return (unsigned char)(from * 37 + size_of_it * 11 + i * 7 + i / 253);
}

static void bcast_of(MPI_Comm comm, int root, int bytes)
{
    int me;
    MPI_Comm_rank(comm, &me);
    for (int i = 0; i < bytes; i++)
        in[i] = me == root ? byte_of(root, bytes, i) : 0;
    GOOD(MPI_Bcast(in, bytes, MPI_BYTE, root, comm));
    int wrong = 0;
    for (int i = 0; i < bytes; i++)
        wrong += in[i] != byte_of(root, bytes, i);
    CHECK(wrong == 0, "%d of %d bytes from %d are wrong", wrong, bytes, root);
}

static void sum_of(MPI_Comm comm, int items)
{
    int me, all;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    int *mine = (int *)out, *sum = (int *)in, wrong = 0;
    for (int i = 0; i < items; i++)
        mine[i] = me + i;
    GOOD(MPI_Allreduce(mine, sum, items, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < items; i++)
        wrong += sum[i] != all * (all - 1) / 2 + all * i;
    CHECK(wrong == 0, "%d of %d sums are wrong", wrong, items);
}

static void use(MPI_Comm comm, int turn)
{
    int all;
    MPI_Comm_size(comm, &all);
    bcast_of(comm, turn % all, 1 + turn % 90);
    sum_of(comm, 1 + turn % 33);
    GOOD(MPI_Barrier(comm));
}

static void section_7_4_many_communicators_come_and_go(void)
{
    MPI_Comm comms[MANY];
    for (int lap = 0; lap < 3; lap++) {
        for (int i = 0; i < MANY; i++) {
            if (i % 3 == 0)
                GOOD(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
            else
                GOOD(MPI_Comm_split(MPI_COMM_WORLD, (rank + i) % 2, -rank, &comms[i]));
            use(comms[i], i);
        }
        for (int i = 0; i < MANY; i++)
            use(comms[i], i + lap);
        for (int i = 0; i < MANY; i++) {
            int which = lap == 1 ? MANY - 1 - i : i;
            GOOD(MPI_Comm_free(&comms[which]));
        }
        use(MPI_COMM_WORLD, lap);
    }
}

static void section_6_4_sizes_around_limits(void)
{
    static const int sizes[] = {0, 1, 7, 8, 255, 256, 4095, 4096, 4097, 8192, 8193, 65535, 65536, 65537, LARGEST};
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        bcast_of(MPI_COMM_WORLD, i % size, sizes[i]);
        sum_of(MPI_COMM_WORLD, sizes[i] / 4);
    }
}

static void section_6_9_1_who_is_not_the_root_may_run_ahead(void)
{
    for (int turn = 0; turn < 300; turn++) {
        long mine = rank * 3L + turn, sum = -1;
        int root = turn / 50 % size;
        GOOD(MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD));
        if (rank == root)
            EQUAL(sum, 3L * size * (size - 1) / 2 + (long)turn * size);
    }
    for (int turn = 0; turn < 300; turn++)
        bcast_of(MPI_COMM_WORLD, turn / 100 % size, 5);
}

static void section_6_12_blocking_and_nonblocking_in_turn(void)
{
    for (int turn = 0; turn < 60; turn++) {
        int mine = rank, sum = -1, other = turn;
        MPI_Request requests[2];
        GOOD(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]));
        sum_of(MPI_COMM_WORLD, 3);
        GOOD(MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]));
        GOOD(MPI_Bcast(&other, 1, MPI_INT, turn % size, MPI_COMM_WORLD));
        if (turn % 2)
            GOOD(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        GOOD(MPI_Barrier(MPI_COMM_WORLD));
        GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        EQUAL(sum, size * (size - 1) / 2);
        EQUAL(other, turn);
    }
}

static void section_3_5_messages_move_while_a_rank_waits_in_a_collective(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int turn = 0; turn < 20; turn++) {
        MPI_Request requests[2];
        memset(out, rank + turn, LARGEST);
        GOOD(MPI_Irecv(in, LARGEST, MPI_BYTE, from, 4, MPI_COMM_WORLD, &requests[0]));
        GOOD(MPI_Isend(out, LARGEST, MPI_BYTE, to, 4, MPI_COMM_WORLD, &requests[1]));
        // One rank enters only after it has received a message.
        if (rank == turn % size)
            GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        GOOD(MPI_Barrier(MPI_COMM_WORLD));
        GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        EQUAL(in[LARGEST - 1], (unsigned char)(from + turn));
    }
}

// Section 6.14: all ranks report a mismatch, and later calls are not affected.
static void section_6_14_different_calls_are_told(void)
{
    MPI_Comm comm;
    GOOD(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    GOOD(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int odd = 0; odd < size; odd++) {
        int mine[2] = {1, 2}, sum[2];
        int code = rank == odd ? MPI_Barrier(comm) : MPI_Allreduce(mine, sum, 1, MPI_INT, MPI_SUM, comm);
        FAILS(code, MPI_ERR_OTHER);
        FAILS(MPI_Allreduce(mine, sum, rank == odd ? 2 : 1, MPI_INT, MPI_SUM, comm), MPI_ERR_TRUNCATE);
        use(comm, odd);
    }
    GOOD(MPI_Comm_free(&comm));
}

// A call of one rank fails because of its arguments, and the others wait in theirs until that rank makes its next call:
// ranks that need its data get an error, and all later calls, of whatever kind, are right. Scatters a block of one
// number to each rank; `n` below 0 makes the call wrong.
static int scatter_blocks(int root, int n)
{
    int blocks[64], counts[64], places[64], got = -1;
    for (int i = 0; i < size; i++) {
        blocks[i] = i + root;
        counts[i] = n;
        places[i] = i;
    }
    int code = MPI_Scatterv(blocks, counts, places, MPI_INT, &got, n, MPI_INT, root, MPI_COMM_WORLD);
    if (code == MPI_SUCCESS)
        EQUAL(got, rank + root);
    return code;
}

// A call with blocks of some KiB, for which a rank may depend on the others longer than for a number.
static int large_blocks(int call, int root, int n)
{
    enum { BYTES = 12000 };
    int counts[64], places[64], bytes = n < 0 ? n : BYTES;
    for (int i = 0; i < size; i++) {
        counts[i] = bytes;
        places[i] = i * BYTES;
    }
    switch (call) {
    case 6: return MPI_Scatterv(out, counts, places, MPI_BYTE, in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    case 7: return MPI_Gather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    default: return MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD);
    }
}

static int missed(int call, int root, int absent)
{
    int n = rank == absent ? -1 : 1, sum = 0, all[64] = {0};
    if (call > 5)
        return large_blocks(call, root, n);
    switch (call) {
    case 0: return MPI_Bcast(&sum, n, MPI_INT, root, MPI_COMM_WORLD);
    case 1: return MPI_Reduce(&n, &sum, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    case 2: return MPI_Allreduce(&n, &sum, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    case 3: return MPI_Scan(&n, &sum, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    case 4: return scatter_blocks(root, n);
    default: return MPI_Reduce_scatter_block(all, &sum, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static int is_needed(int call, int root, int absent)
{
    switch (call) {
    case 0:
    case 4:
    case 6: return absent == root;
    case 1:
    case 7: return rank == root;
    case 3: return absent < rank;
    default: return 1;
    }
}

static void section_6_14_a_rank_misses_a_call(void)
{
    // Larger blocks only with many ranks: between few ranks, each with a core of its own, they may be sent as messages.
    const int calls = size > 16 ? 9 : 6;
    if (size < 2 || size > 64)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int turn = 0; turn < 2 * calls * 3; turn++) {
        int call = turn % calls, absent = turn % size, root = turn / calls % 2 ? absent : (absent + 1) % size;
        int times = 1 + turn % 3 / 2, root_of_next = turn % 4 / 2 ? absent : (root + 1) % size;
        for (int i = 0; i < times; i++) {
            int code = missed(call, root, absent);
            int wanted = rank == absent                     ? MPI_ERR_COUNT
                         : is_needed(call, root, absent) ? MPI_ERR_OTHER
                                                            : MPI_SUCCESS;
            CHECK(code == wanted, "turn %d: %d, expected %d", turn, code, wanted);
        }
        if (turn / 4 % 2)
            GOOD(scatter_blocks(root_of_next, 1));
        else
            bcast_of(MPI_COMM_WORLD, root_of_next, 100);
        sum_of(MPI_COMM_WORLD, 3);
        if (turn % 2)
            GOOD(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    out = malloc(LARGE);
    in = malloc(LARGE);
    if (argc > 1 && !strcmp(argv[1], "differ")) {
        if (rank == 0)
            MPI_Barrier(MPI_COMM_WORLD);
        else
            MPI_Allreduce(MPI_IN_PLACE, out, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return finish();
    }
    RUN(section_7_4_many_communicators_come_and_go);
    RUN(section_6_4_sizes_around_limits);
    RUN(section_6_9_1_who_is_not_the_root_may_run_ahead);
    RUN(section_6_12_blocking_and_nonblocking_in_turn);
    RUN(section_3_5_messages_move_while_a_rank_waits_in_a_collective);
    if (argc > 1 && !strcmp(argv[1], "told"))
        RUN(section_6_14_different_calls_are_told);
    if (argc > 1 && !strcmp(argv[1], "missed"))
        RUN(section_6_14_a_rank_misses_a_call);
    free(out);
    free(in);
    return finish();
}
