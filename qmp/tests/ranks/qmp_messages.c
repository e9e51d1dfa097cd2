// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP: memory, messages to nodes and to neighbours, gated channels.
#include "qmp_check.h"

enum { UP = 1, DOWN = -1 };

static int next(void) { return (rank + 1) % size; }
static int before(void) { return (rank + size - 1) % size; }

// The seed of the message number `k` from a node.
static unsigned seed(int node, int k) { return (unsigned)(node * 1000 + k); }

static void qmp_068_qmp_069_qmp_070_qmp_071_memory(void)
{
    for (size_t bytes = 0; bytes < 5000000; bytes = bytes * 9 + 1) {
        QMP_mem_t *mem = QMP_allocate_memory(bytes);
        CHECK(mem != NULL, "%s", QMP_get_error_string(NULL));
        void *data = QMP_get_memory_pointer(mem);
        CHECK(data && (uintptr_t)data % QMP_ALIGN_DEFAULT == 0, "%p", data);
        memset(data, 1, bytes);
        QMP_free_memory(mem);
    }
    for (size_t alignment = 1; alignment <= 1 << 20; alignment = alignment < 200 ? alignment + 1 : alignment * 3 / 2) {
        QMP_mem_t *mem = QMP_allocate_aligned_memory(1000, alignment, QMP_MEM_DEFAULT);
        CHECK(mem && (uintptr_t)QMP_get_memory_pointer(mem) % alignment == 0, "alignment %zu: %s", alignment, QMP_get_error_string(NULL));
        memset(QMP_get_memory_pointer(mem), 1, 1000);
        QMP_free_memory(mem);
    }
    QMP_mem_t *any = QMP_allocate_aligned_memory(10, QMP_ALIGN_ANY, QMP_MEM_NONCACHE);
    CHECK(any != NULL, "any alignment");
    QMP_free_memory(any);
    CHECK(QMP_get_memory_pointer(any) == NULL, "freed memory");
    EQUAL(QMP_get_error_number(NULL), QMP_BAD_MEMORY);
    NOTHING(QMP_allocate_aligned_memory(10, (size_t)1 << 62, 0), QMP_NOMEM_ERR);
    NOTHING(QMP_allocate_aligned_memory(10, (size_t)-1, 0), QMP_NOMEM_ERR);
    NOTHING(QMP_allocate_memory((size_t)1 << 62), QMP_NOMEM_ERR);
}

static void send_around(size_t bytes, int rounds)
{
    QMP_mem_t *to = QMP_allocate_memory(bytes), *from = QMP_allocate_memory(bytes);
    unsigned char *out = QMP_get_memory_pointer(from), *in = QMP_get_memory_pointer(to);
    QMP_msgmem_t send_mem = QMP_declare_msgmem(out, bytes), receive_mem = QMP_declare_msgmem(in, bytes);
    QMP_msghandle_t send = QMP_declare_send_to(send_mem, next(), 0);
    QMP_msghandle_t receive = QMP_declare_receive_from(receive_mem, before(), 0);
    for (int k = 0; k < rounds; k++) {
        fill(out, bytes, seed(rank, k));
        memset(in, 0xee, bytes);
        WORKS(QMP_start(receive));
        WORKS(QMP_start(send));
        WORKS(QMP_wait(send));
        WORKS(QMP_wait(receive));
        PAYLOAD(in, bytes, seed(before(), k));
    }
    QMP_free_msgmem(send_mem);
    QMP_free_msghandle(send);
    QMP_free_msghandle(receive);
    QMP_free_msgmem(receive_mem);
    QMP_free_memory(to);
    QMP_free_memory(from);
}

static void qmp_072_qmp_075_qmp_077_qmp_079_qmp_080_qmp_085_qmp_087_around_a_ring(void)
{
    for (int i = 0; i < check_size_count(); i++)
        send_around((size_t)check_sizes[i], check_sizes[i] > 100000 ? 3 : 20);
}

// Small messages can be sent before their receives are started.
static void qmp_116_small_messages_are_complete_before_they_are_received(void)
{
    int out = rank, in = -1;
    QMP_msgmem_t mems[2] = {QMP_declare_msgmem(&out, sizeof out), QMP_declare_msgmem(&in, sizeof in)};
    for (int k = 0; k < 50; k++) {
        QMP_msghandle_t send = QMP_declare_send_to(mems[0], next(), 0);
        WORKS(QMP_start(send));
        WORKS(QMP_wait(send));
        out = -5;
        QMP_free_msghandle(send);
        QMP_msghandle_t receive = QMP_declare_receive_from(mems[1], before(), 0);
        WORKS(QMP_start(receive));
        WORKS(QMP_wait(receive));
        QMP_free_msghandle(receive);
        EQUAL(in, k * size + before());
        out = (k + 1) * size + rank;
        in = -1;
    }
    QMP_free_msgmem(mems[0]);
    QMP_free_msgmem(mems[1]);
}

// As in MPI: a shorter message fills the beginning of the buffer, and nothing else is changed.
static void messages_may_be_shorter_than_their_receives(void)
{
    static const size_t sizes[][2] = {{13, 50}, {14, 50}, {4096, 8192}, {9000, 20000}, {100000, 300000}};
    for (int i = 0; i < COUNT_OF(sizes); i++)
        for (int is_allocated = 0; is_allocated < 2; is_allocated++) {
            size_t bytes = sizes[i][0], room = sizes[i][1];
            QMP_mem_t *mem = is_allocated ? QMP_allocate_memory(2 * room) : NULL;
            unsigned char *out = mem ? QMP_get_memory_pointer(mem) : allocate(2 * room), *in = out + room;
            struct pair ring = declare_pair(out, bytes, next(), in, room, before());
            for (int k = 0; k < 5; k++) {
                fill(out, bytes, seed(rank, k));
                memset(in, 0xee, room);
                WORKS(QMP_start(ring.receive));
                WORKS(QMP_start(ring.send));
                WORKS(QMP_wait(ring.receive));
                WORKS(QMP_wait(ring.send));
                PAYLOAD(in, bytes, seed(before(), k));
                for (size_t at = bytes; at < room; at++)
                    if (in[at] != 0xee) {
                        CHECK(0, "byte %zu behind a message of %zu was changed", at, bytes);
                        break;
                    }
            }
            free_pair(ring);
            if (mem)
                QMP_free_memory(mem);
            else
                free(out);
        }
}

static void qmp_086_qmp_111_qmp_114_a_message_can_be_polled(void)
{
    enum { BYTES = 100000 };
    unsigned char *out = allocate(BYTES), *in = allocate(BYTES);
    struct pair ring = declare_pair(out, BYTES, next(), in, BYTES, before());
    QMP_msghandle_t send = ring.send, receive = ring.receive;
    EQUAL(QMP_is_complete(send), QMP_TRUE);
    WORKS(QMP_wait(receive));
    fill(out, BYTES, seed(rank, 0));
    WORKS(QMP_start(receive));
    WORKS(QMP_start(send));
    while (!QMP_is_complete(receive))
        ;
    PAYLOAD(in, BYTES, seed(before(), 0));
    while (!QMP_is_complete(send))
        ;
    EQUAL(QMP_is_complete(receive), QMP_TRUE);
    WORKS(QMP_wait(send));
    free_pair(ring);
    free(out);
    free(in);
}

// Nothing is written before the receiver has started.
static void qmp_110_a_gate_delays_data_until_the_receive_starts(void)
{
    enum { BYTES = 50000 };
    unsigned char *out = allocate(BYTES), *in = allocate(BYTES);
    struct pair ring = declare_pair(out, BYTES, next(), in, BYTES, before());
    QMP_msghandle_t send = ring.send, receive = ring.receive;
    for (int k = 0; k < 3; k++) {
        fill(out, BYTES, seed(rank, k));
        fill(in, BYTES, 999);
        WORKS(QMP_barrier());
        WORKS(QMP_start(send));
        WORKS(QMP_barrier());
        PAYLOAD(in, BYTES, 999);
        WORKS(QMP_start(receive));
        WORKS(QMP_wait(receive));
        PAYLOAD(in, BYTES, seed(before(), k));
        WORKS(QMP_wait(send));
    }
    free_pair(ring);
    free(out);
    free(in);
}

// The k-th started send matches the k-th started receive, whatever their handles.
static void qmp_112_qmp_118_qmp_119_several_messages_to_one_node_keep_their_order(void)
{
    enum { MANY = 6, BYTES = 20000 };
    unsigned char *out[MANY], *in[MANY];
    QMP_msgmem_t out_mem[MANY], in_mem[MANY];
    QMP_msghandle_t sends[MANY], receives[MANY];
    for (int i = 0; i < MANY; i++) {
        size_t bytes = BYTES;
        out[i] = allocate(bytes);
        in[i] = allocate(bytes);
        out_mem[i] = QMP_declare_msgmem(out[i], bytes);
        in_mem[i] = QMP_declare_msgmem(in[i], bytes);
    }
    for (int i = MANY; i-- > 0;)
        sends[i] = QMP_declare_send_to(out_mem[i], next(), 0);
    for (int i = 0; i < MANY; i++)
        receives[i] = QMP_declare_receive_from(in_mem[i], before(), 0);
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < MANY; i++)
            fill(out[i], BYTES, seed(rank, i));
        for (int i = 0; i < MANY; i++)
            WORKS(QMP_start(receives[(i * 5) % MANY]));
        for (int i = 0; i < MANY; i++)
            WORKS(QMP_start(sends[i]));
        WORKS(QMP_wait_all(receives, MANY));
        WORKS(QMP_wait_all(sends, MANY));
        for (int i = 0; i < MANY; i++)
            PAYLOAD(in[(i * 5) % MANY], BYTES, seed(before(), i));
    }
    for (int i = 0; i < MANY; i++) {
        QMP_free_msghandle(sends[i]);
        QMP_free_msghandle(receives[i]);
        QMP_free_msgmem(out_mem[i]);
        QMP_free_msgmem(in_mem[i]);
        free(out[i]);
        free(in[i]);
    }
}

// Faces to all neighbours with one handle; on a thin grid several neighbours are the same node, or this one.
static void exchange_faces(QMP_comm_t comm, size_t bytes, int deep)
{
    enum { AXES = 4 };
    unsigned char *out[2 * AXES], *in[2 * AXES];
    QMP_msgmem_t mems[4 * AXES];
    QMP_msghandle_t parts[4 * AXES], all;
    for (int i = 0; i < 2 * AXES; i++) {
        int axis = i / 2, sign = i % 2 ? UP : DOWN;
        out[i] = allocate(bytes);
        in[i] = allocate(bytes);
        mems[2 * i] = QMP_declare_msgmem(out[i], bytes);
        mems[2 * i + 1] = QMP_declare_msgmem(in[i], bytes);
        parts[2 * i] = comm ? QMP_comm_declare_send_relative(comm, mems[2 * i], axis, sign, 0)
                            : QMP_declare_send_relative(mems[2 * i], axis, sign, 0);
        parts[2 * i + 1] = comm ? QMP_comm_declare_receive_relative(comm, mems[2 * i + 1], axis, -sign, 0)
                                : QMP_declare_receive_relative(mems[2 * i + 1], axis, -sign, 0);
    }
    if (deep) {
        QMP_msghandle_t halves[2] = {QMP_declare_multiple(parts, 2 * AXES), QMP_declare_send_recv_pairs(parts + 2 * AXES, 2 * AXES)};
        all = QMP_declare_multiple(halves, 2);
        REFUSED(QMP_start(halves[1]), QMP_BAD_MESSAGE);
    } else {
        all = QMP_declare_multiple(parts, 4 * AXES);
    }
    REFUSED(QMP_start(parts[0]), QMP_BAD_MESSAGE);
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < 2 * AXES; i++) {
            fill(out[i], bytes, seed(rank, 10 * k + i));
            memset(in[i], 0, bytes);
        }
        if (k % 2)
            WORKS(QMP_clear_to_send(all, QMP_CTS_READY));
        WORKS(QMP_start(all));
        if (k == 2)
            while (!QMP_is_complete(all))
                ;
        WORKS(QMP_wait(all));
        for (int i = 0; i < 2 * AXES; i++) {
            int at[AXES];
            QMP_get_logical_coordinates_from2(at, rank);
            at[i / 2] -= i % 2 ? UP : DOWN;
            PAYLOAD(in[i], bytes, seed(QMP_get_node_number_from(at), 10 * k + i));
        }
    }
    QMP_free_msghandle(all);
    for (int i = 0; i < 4 * AXES; i++)
        QMP_free_msgmem(mems[i]);
    for (int i = 0; i < 2 * AXES; i++) {
        free(out[i]);
        free(in[i]);
    }
}

static void qmp_076_qmp_078_qmp_081_qmp_113_qmp_121_qmpl_041_qmpl_042_faces_of_a_grid(void)
{
    int dims[4];
    two_thick(dims, 4);
    WORKS(QMP_declare_logical_topology(dims, 4));
    exchange_faces(NULL, 8, 0);
    exchange_faces(NULL, 1000, 1);
    exchange_faces(NULL, 70000, 0);
}

static void qmpl_035_qmpl_036_qmpl_037_qmpl_038_messages_in_communicators(void)
{
    exchange_faces(QMP_comm_get_default(), 3000, 0);
    QMP_comm_t comm;
    WORKS(QMP_comm_split(QMP_comm_get_default(), 0, -rank, &comm));
    int out = rank, in = -1, here = QMP_comm_get_node_number(comm);
    QMP_msgmem_t mems[2] = {QMP_declare_msgmem(&out, sizeof out), QMP_declare_msgmem(&in, sizeof in)};
    QMP_msghandle_t send = QMP_comm_declare_send_to(comm, mems[0], (here + 1) % size, 0);
    QMP_msghandle_t receive = QMP_comm_declare_receive_from(comm, mems[1], (here + size - 1) % size, 0);
    WORKS(QMP_start(receive));
    WORKS(QMP_start(send));
    WORKS(QMP_wait(send));
    WORKS(QMP_wait(receive));
    EQUAL(in, next());
    QMP_free_msghandle(send);
    QMP_free_msghandle(receive);
    QMP_free_msgmem(mems[0]);
    QMP_free_msgmem(mems[1]);
    WORKS(QMP_comm_free(comm));
}

// Rows and columns of a square of doubles; both ends may have different shapes of the same size.
static void check_shape(QMP_msgmem_t from, QMP_msgmem_t to, const double *in, const int *where, int count)
{
    QMP_msghandle_t pair[2] = {QMP_declare_receive_from(to, before(), 0), QMP_declare_send_to(from, next(), 0)};
    QMP_msghandle_t both = QMP_declare_multiple(pair, 2);
    CHECK(both != NULL, "%s", QMP_get_error_string(NULL));
    WORKS(QMP_start(both));
    WORKS(QMP_wait(both));
    for (int i = 0; i < count; i++)
        CHECK(in[where[2 * i]] == before() * 100000 + where[2 * i + 1], "[%d] is %g", where[2 * i], in[where[2 * i]]);
    QMP_free_msghandle(both);
    QMP_free_msgmem(from);
    QMP_free_msgmem(to);
}

static void qmp_073_qmp_074_qmp_117_qmpl_034_shapes(void)
{
    enum { N = 64 };
    static double out[N * N], in[N * N];
    static int where[2 * 4 * N];
    for (int i = 0; i < N * N; i++)
        out[i] = rank * 100000 + i;
    // A column into a row.
    for (int i = 0; i < N; i++) {
        where[2 * i] = 3 * N + i;
        where[2 * i + 1] = i * N + 5;
    }
    check_shape(QMP_declare_strided_msgmem(out + 5, sizeof *out, N, N * sizeof *out), QMP_declare_msgmem(in + 3 * N, N * sizeof *in), in, where, N);
    // Wide blocks, from below upwards, into blocks of another width.
    for (int i = 0; i < 4 * N; i++) {
        where[2 * i] = (i / 16) * N + i % 16;
        where[2 * i + 1] = (N - 1 - i / 32) * N + i % 32;
    }
    check_shape(QMP_declare_strided_msgmem(out + (N - 1) * N, 32 * sizeof *out, 8, -(ptrdiff_t)(N * sizeof *out)),
                QMP_declare_strided_msgmem(in, 16 * sizeof *in, 16, N * sizeof *in), in, where, 4 * N);
    // Two columns, as an array of strided pieces, into indexed memory.
    void *bases[2] = {out + 1, out + 7};
    size_t sizes[2] = {sizeof *out, 2 * sizeof *out};
    int blocks[2] = {4, 2}, lengths[3] = {3, 0, 5}, indices[3] = {100, 0, 10};
    ptrdiff_t strides[2] = {N * sizeof *out, 2 * N * sizeof *out};
    const int sent[8] = {1, N + 1, 2 * N + 1, 3 * N + 1, 7, 8, 2 * N + 7, 2 * N + 8};
    const int kept[8] = {100, 101, 102, 10, 11, 12, 13, 14};
    for (int i = 0; i < 8; i++) {
        where[2 * i] = kept[i];
        where[2 * i + 1] = sent[i];
    }
    check_shape(QMP_declare_strided_array_msgmem(bases, sizes, blocks, strides, 2),
                QMP_declare_indexed_msgmem(in, lengths, indices, sizeof *in, 3), in, where, 8);
    // The document's form, terminated by a NULL base.
    void *ended[3] = {out + 1, out + 7, NULL};
    check_shape(qmp2004_declare_strided_array_msgmem(ended, sizes, blocks, strides),
                QMP_declare_indexed_msgmem(in, lengths, indices, sizeof *in, 3), in, where, 8);
}

static void qmpl_039_qmpl_040_other_addresses(void)
{
    int out[3] = {rank, rank + 100, rank + 200}, in[3] = {-1, -1, -1};
    QMP_msgmem_t mems[2] = {QMP_declare_msgmem(out, sizeof *out), QMP_declare_msgmem(in, sizeof *in)};
    QMP_msghandle_t send = QMP_declare_send_to(mems[0], next(), 0), receive = QMP_declare_receive_from(mems[1], before(), 0);
    WORKS(QMP_change_address(send, out + 1));
    WORKS(QMP_change_address(receive, in + 1));
    WORKS(QMP_start(receive));
    WORKS(QMP_start(send));
    WORKS(QMP_wait(send));
    WORKS(QMP_wait(receive));
    EQUAL(in[0], -1);
    EQUAL(in[1], before() + 100);
    QMP_msghandle_t pair[2] = {receive, send};
    QMP_msghandle_t both = QMP_declare_multiple(pair, 2);
    void *addresses[2] = {in + 2, out + 2};
    WORKS(QMP_change_address_multiple(both, addresses, 2));
    WORKS(QMP_start(both));
    WORKS(QMP_wait(both));
    EQUAL(in[2], before() + 200);
    REFUSED(QMP_change_address_multiple(both, addresses, 1), QMP_INVALID_ARG);
    REFUSED(QMP_change_address(both, in), QMP_INVALID_ARG);
    QMP_free_msghandle(both);
    QMP_free_msgmem(mems[0]);
    QMP_free_msgmem(mems[1]);
}

// Every node sends to the node that a map gives, and finds out which node sends to it.
static void qmp_125_a_map_of_communications(void)
{
    int to = (rank * 3 + 1) % size, from = -1, out = rank, in = -1;
    for (int node = 0; node < size; node++)
        if ((node * 3 + 1) % size == rank)
            from = node;
    if (size % 3 == 0)
        return;
    struct pair map = declare_pair(&out, sizeof out, to, &in, sizeof in, from);
    WORKS(QMP_start(map.send));
    WORKS(QMP_start(map.receive));
    WORKS(QMP_wait(map.receive));
    WORKS(QMP_wait(map.send));
    EQUAL(in, from);
    free_pair(map);
}

static void qmp_088_qmp_115_a_handle_is_declared_once_and_used_often(void)
{
    enum { MANY = 1000 };
    int out = 0, in = 0;
    struct pair ring = declare_pair(&out, sizeof out, next(), &in, sizeof in, before());
    QMP_msghandle_t both[2] = {ring.receive, ring.send};
    for (int k = 0; k < MANY; k++) {
        out = rank + k;
        WORKS(QMP_start(both[0]));
        WORKS(QMP_start(both[1]));
        WORKS(QMP_wait_all(both, 2));
        EQUAL(in, before() + k);
    }
    free_pair(ring);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    RUN(qmp_068_qmp_069_qmp_070_qmp_071_memory);
    RUN(qmp_072_qmp_075_qmp_077_qmp_079_qmp_080_qmp_085_qmp_087_around_a_ring);
    RUN(qmp_116_small_messages_are_complete_before_they_are_received);
    RUN(messages_may_be_shorter_than_their_receives);
    RUN(qmp_086_qmp_111_qmp_114_a_message_can_be_polled);
    RUN(qmp_110_a_gate_delays_data_until_the_receive_starts);
    RUN(qmp_112_qmp_118_qmp_119_several_messages_to_one_node_keep_their_order);
    RUN(qmp_076_qmp_078_qmp_081_qmp_113_qmp_121_qmpl_041_qmpl_042_faces_of_a_grid);
    RUN(qmpl_035_qmpl_036_qmpl_037_qmpl_038_messages_in_communicators);
    RUN(qmp_073_qmp_074_qmp_117_qmpl_034_shapes);
    RUN(qmpl_039_qmpl_040_other_addresses);
    RUN(qmp_125_a_map_of_communications);
    RUN(qmp_088_qmp_115_a_handle_is_declared_once_and_used_often);
    return end();
}
