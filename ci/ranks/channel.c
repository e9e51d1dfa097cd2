// SPDX-License-Identifier: MIT OR Apache-2.0
// Gated channels, by the private C interface on which QMP is built: rounds of halos in one to four dimensions, the
// order of starts, messages sent before their receives, messages of other sizes than their receives, wrong use.
#include "check.h"

#include <signal.h>
#include <stddef.h>
#include <sys/time.h>

struct piece {
    void *base;
    size_t block_bytes, blocks;
    ptrdiff_t stride;
};
enum { SEND, RECEIVE };
enum { OK, STALE, ACTIVE, BAD_PEER, BAD_COMM, BAD_MEMORY, SIZES_DIFFER, TIME_OUT };
enum { DIRECT, PACKED, EAGER, WRITES, GATES, ALLOCATIONS, STREAMED, REFUSED };

int rmpi_channel_version(void);
int rmpi_channel_declare(MPI_Comm comm, int direction, int peer, int channel_class,
                         const struct piece *pieces, size_t count, uint64_t *id);
int rmpi_channel_start(const uint64_t *ids, size_t count);
int rmpi_channel_test(const uint64_t *ids, size_t count, int *done);
int rmpi_channel_wait(const uint64_t *ids, size_t count, double seconds);
int rmpi_channel_move(uint64_t id, const struct piece *pieces, size_t count);
int rmpi_channel_free(uint64_t id);
int rmpi_channel_counters(uint64_t counters[8]);

static const double FOREVER = -1;

static uint64_t declare(MPI_Comm comm, int direction, int peer, int channel_class, void *base,
                        size_t bytes)
{
    struct piece whole = {base, bytes, 1, 0};
    uint64_t id = 0;
    EQUAL(rmpi_channel_declare(comm, direction, peer, channel_class, &whole, 1, &id), OK);
    CHECK(id != 0, "a name that is none");
    return id;
}

// A different seed for each rank, direction and round.
static unsigned seed_of(int from, int direction, int round)
{
    return (unsigned)(from * 4096 + direction * 256 + round);
}

enum { DIRECTIONS = 8 };

// The neighbours on a grid of up to four dimensions, forward at even places. In a dimension of one rank, a rank is its
// own neighbour.
static void neighbours(int peers[DIRECTIONS])
{
    int dims[4] = {0}, periods[4] = {1, 1, 1, 1};
    MPI_Comm grid;
    MPI_Dims_create(size, 4, dims);
    GOOD(MPI_Cart_create(MPI_COMM_WORLD, 4, dims, periods, 0, &grid));
    for (int axis = 0; axis < 4; axis++)
        GOOD(MPI_Cart_shift(grid, axis, 1, &peers[2 * axis + 1], &peers[2 * axis]));
    GOOD(MPI_Comm_free(&grid));
}

// Everything that a rank exchanges. Messages in direction d have class d % 2, as in QMP, and arrive from the opposite
// direction.
struct halo {
    size_t bytes;
    unsigned char *out[DIRECTIONS], *in[DIRECTIONS];
    uint64_t ids[2 * DIRECTIONS];
    int peers[DIRECTIONS];
};

static void halo_make(struct halo *halo, size_t bytes, int ours)
{
    halo->bytes = bytes;
    neighbours(halo->peers);
    for (int d = 0; d < DIRECTIONS; d++) {
        unsigned char **both[2] = {&halo->out[d], &halo->in[d]};
        for (int at = 0; at < 2; at++)
            if (ours)
                GOOD(MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, both[at]));
            else
                *both[at] = malloc(bytes ? bytes : 1);
        // A message from direction d was sent in the opposite direction.
        halo->ids[d] = declare(MPI_COMM_WORLD, RECEIVE, halo->peers[d], (d + 1) % 2, halo->in[d], bytes);
        halo->ids[DIRECTIONS + d] =
            declare(MPI_COMM_WORLD, SEND, halo->peers[d], d % 2, halo->out[d], bytes);
    }
}

static void halo_round(struct halo *halo, int round)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        fill(halo->out[d], halo->bytes, seed_of(rank, d, round));
        memset(halo->in[d], 0xEE, halo->bytes);
    }
    EQUAL(rmpi_channel_start(halo->ids, 2 * DIRECTIONS), OK);
    EQUAL(rmpi_channel_wait(halo->ids, 2 * DIRECTIONS, FOREVER), OK);
    for (int d = 0; d < DIRECTIONS; d++)
        PAYLOAD(halo->in[d], halo->bytes, seed_of(halo->peers[d], d ^ 1, round));
}

static void halo_free(struct halo *halo, int ours)
{
    MPI_Barrier(MPI_COMM_WORLD);
    for (int at = 0; at < 2 * DIRECTIONS; at++)
        EQUAL(rmpi_channel_free(halo->ids[at]), OK);
    for (int d = 0; d < DIRECTIONS; d++) {
        if (ours) {
            GOOD(MPI_Free_mem(halo->in[d]));
            GOOD(MPI_Free_mem(halo->out[d]));
        } else {
            free(halo->in[d]);
            free(halo->out[d]);
        }
    }
}

// Several directions may lead to one rank; then only the order of starts distinguishes them.
static void halos_of_all_sizes(void)
{
    static const size_t sizes[] = {1, 64, 1024, 4096, 4097, 16384, 65536, 300001};
    for (int at = 0; at < COUNT_OF(sizes); at++)
        for (int ours = 0; ours < 2; ours++) {
            struct halo halo;
            halo_make(&halo, sizes[at], ours);
            for (int round = 0; round < 20; round++)
                halo_round(&halo, round);
            halo_free(&halo, ours);
        }
}

static void nothing_is_asked_of_the_system_after_the_declares(void)
{
    struct halo halo;
    uint64_t before[8], after[8];
    halo_make(&halo, 10000, 1);
    halo_round(&halo, 0);
    EQUAL(rmpi_channel_counters(before), OK);
    for (int round = 1; round < 50; round++)
        halo_round(&halo, round);
    EQUAL(rmpi_channel_counters(after), OK);
    EQUAL(after[ALLOCATIONS], before[ALLOCATIONS]);
    EQUAL(after[PACKED], before[PACKED]);
    EQUAL(after[EAGER], before[EAGER]);
    EQUAL(after[DIRECT] + after[STREAMED] - before[DIRECT] - before[STREAMED], 49 * DIRECTIONS * 10000);
    EQUAL(after[REFUSED], 0);
    halo_free(&halo, 1);
}

// The names of the counters as performance variables, in their order.
static const char *const NAMES[] = {"qmp_direct_bytes", "qmp_copied_bytes", "qmp_early_bytes", "qmp_writes",
                                    "qmp_gates_told", "qmp_allocations", "qmp_frame_bytes", "qmp_refused",
                                    "qmp_sends", "qmp_receives", "qmp_late_gates"};
enum { SENDS = REFUSED + 1, RECEIVES, LATE, VARIABLES };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle variables[VARIABLES];
static volatile unsigned long long looks, wrong, last[VARIABLES];

static unsigned long long shown(int variable)
{
    unsigned long long value = ~0ull;
    GOOD(MPI_T_pvar_read(session, variables[variable], &value));
    return value;
}

static void look(int number)
{
    (void)number;
    looks++;
    for (int at = 0; at < VARIABLES; at++) {
        unsigned long long value = 0;
        wrong += MPI_T_pvar_read(session, variables[at], &value) != MPI_SUCCESS || value < last[at];
        last[at] = value;
    }
}

static void tools_see_what_channels_count(void)
{
    enum { BYTES = 100000, ROUNDS = 200 };
    static unsigned char out[2][BYTES], in[2][BYTES];
    uint64_t before[8], after[8], receives[2], sends[2];
    struct halo halo;
    int provided, index, count, next = (rank + 1) % size, from = (rank + size - 1) % size;
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    GOOD(MPI_T_pvar_session_create(&session));
    for (int at = 0; at < VARIABLES; at++) {
        int is_sum = strstr(NAMES[at], "_bytes") != NULL;
        GOOD(MPI_T_pvar_get_index(NAMES[at], is_sum ? MPI_T_PVAR_CLASS_AGGREGATE : MPI_T_PVAR_CLASS_COUNTER, &index));
        GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &variables[at], &count));
    }
    EQUAL(rmpi_channel_counters(before), OK);
    GOOD(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    // A large and a small message, both started before their receives.
    for (int at = 0; at < 2; at++) {
        size_t bytes = at == 0 ? BYTES : 64;
        receives[at] = declare(MPI_COMM_WORLD, RECEIVE, from, 9 + at, in[at], bytes);
        sends[at] = declare(MPI_COMM_WORLD, SEND, next, 9 + at, out[at], bytes);
    }
    EQUAL(shown(SENDS) + shown(RECEIVES) + shown(LATE), 0);
    EQUAL(shown(ALLOCATIONS) >= 4, 1);
    EQUAL(rmpi_channel_start(sends, 2), OK);
    EQUAL(shown(LATE), 2);
    EQUAL(shown(EAGER), 64);
    MPI_Barrier(MPI_COMM_WORLD);
    EQUAL(rmpi_channel_start(receives, 2), OK);
    EQUAL(rmpi_channel_wait(receives, 2, FOREVER), OK);
    EQUAL(rmpi_channel_wait(sends, 2, FOREVER), OK);
    EQUAL(shown(SENDS), 2);
    EQUAL(shown(RECEIVES), 2);
    for (int at = 0; at < 2; at++) {
        EQUAL(rmpi_channel_free(receives[at]), OK);
        EQUAL(rmpi_channel_free(sends[at]), OK);
    }
    // Many messages, while a signal handler reads the counters.
    struct itimerval every = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    halo_make(&halo, 1000, 1);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int round = 0; round < ROUNDS; round++)
        halo_round(&halo, round);
    while (looks < 20)
        ;
    setitimer(ITIMER_REAL, &never, NULL);
    EQUAL(wrong, 0);
    EQUAL(shown(SENDS), 2 + ROUNDS * DIRECTIONS);
    EQUAL(shown(RECEIVES), 2 + ROUNDS * DIRECTIONS);
    EQUAL(rmpi_channel_counters(after), OK);
    for (int at = 0; at <= REFUSED; at++)
        EQUAL(shown(at), after[at] - before[at]);
    halo_free(&halo, 1);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
}

static void blocks_of_different_shapes(void)
{
    enum { BYTES = 48000 };
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    static unsigned char out[3 * BYTES], in[3 * BYTES], packed[BYTES];
    static const size_t shapes[][2] = {{8, 6000}, {400, 120}, {16000, 3}, {48000, 1}};
    for (int mine = 0; mine < COUNT_OF(shapes); mine++)
        for (int theirs = 0; theirs < COUNT_OF(shapes); theirs++) {
            size_t block = shapes[mine][0], wanted = shapes[theirs][0];
            struct piece from = {out, block, shapes[mine][1], 2 * (ptrdiff_t)block};
            // Backwards, in two pieces.
            size_t half = shapes[theirs][1] / 2, rest = shapes[theirs][1] - half;
            struct piece to[2] = {
                {in + 2 * wanted * (shapes[theirs][1] - 1), wanted, half, -2 * (ptrdiff_t)wanted},
                {in + 2 * wanted * (rest - 1), wanted, rest, -2 * (ptrdiff_t)wanted}};
            uint64_t ids[2];
            EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, RECEIVE, last, 2, to, 2, &ids[0]), OK);
            EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, next, 2, &from, 1, &ids[1]), OK);
            for (int round = 0; round < 3; round++) {
                fill(packed, BYTES, seed_of(rank, mine, round));
                memset(in, 0xEE, sizeof in);
                for (size_t at = 0; at < shapes[mine][1]; at++)
                    memcpy(out + 2 * at * block, packed + at * block, block);
                EQUAL(rmpi_channel_start(ids, 2), OK);
                EQUAL(rmpi_channel_wait(ids, 2, FOREVER), OK);
                for (size_t at = 0; at < shapes[theirs][1]; at++) {
                    unsigned char *place = in + 2 * wanted * (shapes[theirs][1] - 1 - at);
                    memcpy(packed + at * wanted, place, wanted);
                    if (at > 0)
                        EQUAL(place[wanted], 0xEE);
                }
                PAYLOAD(packed, BYTES, seed_of(last, mine, round));
            }
            MPI_Barrier(MPI_COMM_WORLD);
            EQUAL(rmpi_channel_free(ids[0]), OK);
            EQUAL(rmpi_channel_free(ids[1]), OK);
        }
}

static void small_sends_do_not_wait_for_their_receivers(void)
{
    enum { MOST = 8 };
    static unsigned char out[MOST][4096], in[4096];
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    uint64_t ids[MOST], receive;
    for (int at = 0; at < MOST; at++) {
        ids[at] = declare(MPI_COMM_WORLD, SEND, next, 3, out[at], sizeof out[at]);
        fill(out[at], sizeof out[at], seed_of(rank, at, 5));
    }
    for (int at = 0; at < MOST; at++) {
        EQUAL(rmpi_channel_start(&ids[at], 1), OK);
        EQUAL(rmpi_channel_wait(&ids[at], 1, FOREVER), OK);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    receive = declare(MPI_COMM_WORLD, RECEIVE, last, 3, in, sizeof in);
    for (int at = 0; at < MOST; at++) {
        EQUAL(rmpi_channel_start(&receive, 1), OK);
        EQUAL(rmpi_channel_wait(&receive, 1, FOREVER), OK);
        PAYLOAD(in, sizeof in, seed_of(last, at, 5));
        EQUAL(rmpi_channel_free(ids[at]), OK);
    }
    EQUAL(rmpi_channel_free(receive), OK);
}

static void declared_used_once_and_freed(void)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int round = 0; round < 300; round++) {
        int out = 1000 * rank + round, in = -1;
        uint64_t ids[2];
        int first = (rank + round) % 2;
        for (int at = 0; at < 2; at++)
            if ((at ^ first) == 0)
                ids[0] = declare(MPI_COMM_WORLD, RECEIVE, last, 0, &in, sizeof in);
            else
                ids[1] = declare(MPI_COMM_WORLD, SEND, next, 0, &out, sizeof out);
        EQUAL(rmpi_channel_start(&ids[first], 1), OK);
        EQUAL(rmpi_channel_start(&ids[!first], 1), OK);
        EQUAL(rmpi_channel_wait(ids, 2, FOREVER), OK);
        EQUAL(in, 1000 * last + round);
        EQUAL(rmpi_channel_free(ids[0]), OK);
        EQUAL(rmpi_channel_free(ids[1]), OK);
    }
}

static void communicators_do_not_mix(void)
{
    MPI_Comm back;
    int next = (rank + 1) % size, last = (rank + size - 1) % size, out[2], in[2];
    uint64_t ids[4];
    GOOD(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &back));
    // In the other communicator the same processes have the reverse order.
    ids[0] = declare(MPI_COMM_WORLD, RECEIVE, last, 0, &in[0], sizeof in[0]);
    ids[1] = declare(back, RECEIVE, size - 1 - last, 0, &in[1], sizeof in[1]);
    ids[2] = declare(back, SEND, size - 1 - next, 0, &out[1], sizeof out[1]);
    ids[3] = declare(MPI_COMM_WORLD, SEND, next, 0, &out[0], sizeof out[0]);
    for (int round = 0; round < 10; round++) {
        out[0] = 100 * rank + round;
        out[1] = -100 * rank - round;
        EQUAL(rmpi_channel_start(ids, 4), OK);
        EQUAL(rmpi_channel_wait(ids, 4, FOREVER), OK);
        EQUAL(in[0], 100 * last + round);
        EQUAL(in[1], -100 * last - round);
    }
    for (int at = 0; at < 4; at++)
        EQUAL(rmpi_channel_free(ids[at]), OK);
    GOOD(MPI_Comm_free(&back));
}

static void messages_of_mpi_go_beside(void)
{
    struct halo halo;
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    halo_make(&halo, 20000, 1);
    for (int round = 0; round < 20; round++) {
        static unsigned char out[100000], in[100000];
        MPI_Request requests[2];
        fill(out, sizeof out, seed_of(rank, 9, round));
        GOOD(MPI_Irecv(in, sizeof in, MPI_BYTE, last, round, MPI_COMM_WORLD, &requests[0]));
        GOOD(MPI_Isend(out, sizeof out, MPI_BYTE, next, round, MPI_COMM_WORLD, &requests[1]));
        halo_round(&halo, round);
        GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        PAYLOAD(in, sizeof in, seed_of(last, 9, round));
    }
    halo_free(&halo, 1);
}

static void messages_that_are_too_long_are_told_to_both(void)
{
    static unsigned char out[30000], in[30000];
    static const size_t sizes[][2] = {{21000, 20000}, {21000, 20999}, {4096, 4095}, {1, 0}};
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int at = 0; at < COUNT_OF(sizes); at++)
        for (int round = 0; round < 4; round++) {
            uint64_t receive = declare(MPI_COMM_WORLD, RECEIVE, last, 6, in, sizes[at][1]);
            uint64_t send = declare(MPI_COMM_WORLD, SEND, next, 6, out, sizes[at][0]);
            memset(in, 0xEE, sizeof in);
            EQUAL(rmpi_channel_start(&receive, 1), OK);
            EQUAL(rmpi_channel_start(&send, 1), OK);
            EQUAL(rmpi_channel_wait(&receive, 1, FOREVER), SIZES_DIFFER);
            // A small message may be complete long before its receive is started.
            int end = rmpi_channel_wait(&send, 1, FOREVER);
            CHECK(end == SIZES_DIFFER || (end == OK && sizes[at][0] <= 4096), "%d", end);
            EQUAL(in[0], 0xEE);
            MPI_Barrier(MPI_COMM_WORLD);
            EQUAL(rmpi_channel_free(send), OK);
            EQUAL(rmpi_channel_free(receive), OK);
        }
}

// In memory of the program, contiguous and in blocks: the memory behind a short message is unchanged, also after a long
// one.
static void messages_may_be_shorter_than_their_receives(void)
{
    enum { MOST = 600000 };
    static unsigned char out[MOST], in[2 * MOST];
    static const size_t sizes[][2] = {{13, 50}, {0, 8}, {4000, 5000}, {5000, 20000}, {70000, 80000}, {400000, MOST}};
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int at = 0; at < COUNT_OF(sizes); at++)
        for (int blocks = 1; blocks <= 10; blocks += 9) {
            size_t sent = sizes[at][0], room = sizes[at][1], block = room / (size_t)blocks;
            struct piece to = {in, block, (size_t)blocks, 2 * (ptrdiff_t)block};
            uint64_t ids[3];
            EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, RECEIVE, last, 7, &to, 1, &ids[0]), OK);
            ids[1] = declare(MPI_COMM_WORLD, SEND, next, 7, out, block * (size_t)blocks);
            ids[2] = declare(MPI_COMM_WORLD, SEND, next, 7, out, sent);
            for (int round = 0; round < 6; round++) {
                int is_short = round % 2;
                fill(out, room, seed_of(rank, at, round));
                memset(in, 0xEE, sizeof in);
                uint64_t both[2] = {ids[0], ids[1 + is_short]};
                EQUAL(rmpi_channel_start(both, 2), OK);
                EQUAL(rmpi_channel_wait(both, 2, FOREVER), OK);
                static unsigned char packed[MOST];
                for (int b = 0; b < blocks; b++)
                    memcpy(packed + (size_t)b * block, in + 2 * (size_t)b * block, block);
                size_t arrived = is_short ? sent : block * (size_t)blocks;
                // The pattern of a shorter message is the beginning of that of a longer one.
                PAYLOAD(packed, arrived, seed_of(last, at, round));
                for (size_t i = arrived; i < block * (size_t)blocks; i++)
                    if (packed[i] != 0xEE) {
                        CHECK(0, "byte %zu behind a message of %zu", i, arrived);
                        break;
                    }
            }
            MPI_Barrier(MPI_COMM_WORLD);
            for (int id = 0; id < 3; id++)
                EQUAL(rmpi_channel_free(ids[id]), OK);
        }
}

// Over a network, smaller blocks than these are packed: a write of each would cost more than two copies.
static int goes_by_itself(size_t block)
{
    const char *providers = getenv("RMPI_PROVIDERS");
    return block >= 16 << 10 || !providers || !strstr(providers, "verbs");
}

// Large blocks are copied directly from the sender's memory into the receiver's, as the counters show.
static void blocks_are_copied_once(void)
{
    enum { FACE = 60000, ROUNDS = 30, WARM = 5 };
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    static const size_t shapes[][2] = {{FACE, 1}, {20000, 3}, {6000, 10}, {240, 250}};
    for (int mine = 0; mine < COUNT_OF(shapes); mine++)
        for (int theirs = 0; theirs < COUNT_OF(shapes); theirs++) {
            unsigned char *out, *in;
            uint64_t ids[2], before[8], after[8];
            GOOD(MPI_Alloc_mem(2 * FACE, MPI_INFO_NULL, &out));
            GOOD(MPI_Alloc_mem(2 * FACE, MPI_INFO_NULL, &in));
            size_t block = shapes[mine][0], wanted = shapes[theirs][0];
            struct piece from = {out, block, shapes[mine][1], 2 * (ptrdiff_t)block};
            struct piece to = {in, wanted, shapes[theirs][1], 2 * (ptrdiff_t)wanted};
            EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, RECEIVE, last, 4, &to, 1, &ids[0]), OK);
            EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, next, 4, &from, 1, &ids[1]), OK);
            for (int round = 0; round < WARM + ROUNDS; round++) {
                if (round == WARM)
                    EQUAL(rmpi_channel_counters(before), OK);
                for (size_t at = 0; at < shapes[mine][1]; at++)
                    memset(out + 2 * at * block, rank + round, block);
                memset(in, 0xEE, 2 * FACE);
                EQUAL(rmpi_channel_start(ids, 2), OK);
                EQUAL(rmpi_channel_wait(ids, 2, FOREVER), OK);
                for (size_t at = 0; at < 2 * FACE; at++) {
                    unsigned char expected = at / wanted % 2 == 0 ? (unsigned char)(last + round) : 0xEE;
                    if (in[at] != expected) {
                        CHECK(0, "byte %zu of blocks of %zu is %d", at, wanted, in[at]);
                        break;
                    }
                }
            }
            EQUAL(rmpi_channel_counters(after), OK);
            int direct = goes_by_itself(block) && goes_by_itself(wanted);
            // Between hosts, tcp packs the data.
            if (on_one_host()) {
                EQUAL(after[DIRECT] - before[DIRECT], direct ? (uint64_t)ROUNDS * FACE : 0);
                EQUAL(after[PACKED] == before[PACKED], direct);
            }
            EQUAL(after[ALLOCATIONS], before[ALLOCATIONS]);
            EQUAL(after[REFUSED], 0);
            MPI_Barrier(MPI_COMM_WORLD);
            EQUAL(rmpi_channel_free(ids[0]), OK);
            EQUAL(rmpi_channel_free(ids[1]), OK);
            GOOD(MPI_Free_mem(out));
            GOOD(MPI_Free_mem(in));
        }
}

static void wrong_use_has_a_code_each(void)
{
    static unsigned char bytes[20000];
    struct piece whole = {bytes, sizeof bytes, 1, 0}, nowhere = {NULL, 8, 1, 0};
    struct piece wide = {bytes, SIZE_MAX / 2, 4, 8}, none = {NULL, 0, 5, 0};
    uint64_t id = 7, other;
    int done;
    EQUAL(rmpi_channel_version(), 2);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, size, 0, &whole, 1, &id), BAD_PEER);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, -1, 0, &whole, 1, &id), BAD_PEER);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, 0, 16, &whole, 1, &id), BAD_PEER);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, 2, 0, 0, &whole, 1, &id), BAD_PEER);
    EQUAL(rmpi_channel_declare(MPI_COMM_NULL, SEND, 0, 0, &whole, 1, &id), BAD_COMM);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, 0, 0, &nowhere, 1, &id), BAD_MEMORY);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, 0, 0, &wide, 1, &id), BAD_MEMORY);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, 0, 0, NULL, 1, &id), BAD_MEMORY);
    EQUAL(id, 7);
    EQUAL(rmpi_channel_declare(MPI_COMM_WORLD, SEND, rank, 9, &none, 1, &other), OK);
    EQUAL(rmpi_channel_free(other), OK);
    EQUAL(rmpi_channel_free(other), STALE);
    id = declare(MPI_COMM_WORLD, RECEIVE, rank, 8, bytes, sizeof bytes);
    other = declare(MPI_COMM_WORLD, SEND, rank, 8, bytes, sizeof bytes);
    uint64_t strange[] = {0, 1, ~0ull, id + 1000, id ^ 1ull << 40};
    for (int at = 0; at < COUNT_OF(strange); at++) {
        uint64_t both[] = {id, strange[at]};
        EQUAL(rmpi_channel_start(both, 2), STALE);
        EQUAL(rmpi_channel_test(both, 2, &done), STALE);
        EQUAL(rmpi_channel_wait(both, 2, FOREVER), STALE);
        EQUAL(rmpi_channel_move(strange[at], &whole, 1), STALE);
        EQUAL(rmpi_channel_free(strange[at]), STALE);
    }
    EQUAL(rmpi_channel_start(NULL, 1), STALE);
    EQUAL(rmpi_channel_start(NULL, 0), OK);
    EQUAL(rmpi_channel_wait(&id, 1, 0), OK);
    EQUAL(rmpi_channel_start(&id, 1), OK);
    EQUAL(rmpi_channel_start(&id, 1), ACTIVE);
    EQUAL(rmpi_channel_free(id), ACTIVE);
    EQUAL(rmpi_channel_move(id, &whole, 1), ACTIVE);
    EQUAL(rmpi_channel_test(&id, 1, &done), OK);
    EQUAL(done, 0);
    EQUAL(rmpi_channel_wait(&id, 1, 0.01), TIME_OUT);
    EQUAL(rmpi_channel_move(other, &nowhere, 1), BAD_MEMORY);
    EQUAL(rmpi_channel_move(other, &whole, 1), OK);
    EQUAL(rmpi_channel_start(&other, 1), OK);
    EQUAL(rmpi_channel_wait(&id, 1, FOREVER), OK);
    EQUAL(rmpi_channel_wait(&other, 1, FOREVER), OK);
    EQUAL(rmpi_channel_test(&id, 1, &done), OK);
    EQUAL(done, 1);
    EQUAL(rmpi_channel_free(id), OK);
    EQUAL(rmpi_channel_free(other), OK);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(halos_of_all_sizes);
    RUN(nothing_is_asked_of_the_system_after_the_declares);
    RUN(tools_see_what_channels_count);
    RUN(blocks_of_different_shapes);
    RUN(small_sends_do_not_wait_for_their_receivers);
    RUN(declared_used_once_and_freed);
    RUN(communicators_do_not_mix);
    RUN(messages_of_mpi_go_beside);
    RUN(messages_that_are_too_long_are_told_to_both);
    RUN(messages_may_be_shorter_than_their_receives);
    RUN(blocks_are_copied_once);
    RUN(wrong_use_has_a_code_each);
    return finish();
}
