// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP: wrong arguments return the right status, and QMP stays usable. `timeout`: with RMPI_QMP_TIMEOUT=1.
#include "qmp_check.h"

static int value[4];

static void qmp_041_qmp_028_invalid_memory(void)
{
    int *foreign = value;
    QMP_msgmem_t mem = QMP_declare_msgmem(value, sizeof value);
    QMP_free_msgmem(mem);
    NOTHING(QMP_declare_send_to(mem, 0, 0), QMP_BAD_MEMORY);
    NOTHING(QMP_declare_send_to(NULL, 0, 0), QMP_BAD_MEMORY);
    NOTHING(QMP_declare_send_to((QMP_msgmem_t)(void *)foreign, 0, 0), QMP_BAD_MEMORY);
    QMP_free_msgmem(mem);
    EQUAL(QMP_get_error_number(NULL), QMP_BAD_MEMORY);
    QMP_free_msgmem((QMP_msgmem_t)(void *)foreign);
    QMP_free_msgmem(NULL);
    QMP_free_memory((QMP_mem_t *)(void *)foreign);
    EQUAL(QMP_get_error_number(NULL), QMP_BAD_MEMORY);
    QMP_free_memory(NULL);
    NOTHING(QMP_declare_msgmem(NULL, 8), QMP_BAD_MEMORY);
    NOTHING(QMP_declare_strided_msgmem(value, 4, -1, 4), QMP_INVALID_ARG);
    int lengths[1] = {-1}, indices[1] = {0};
    NOTHING(QMP_declare_indexed_msgmem(value, lengths, indices, 4, 1), QMP_INVALID_ARG);
    NOTHING(QMP_declare_indexed_msgmem(value, NULL, indices, 4, 1), QMP_INVALID_ARG);
    NOTHING(QMP_declare_strided_array_msgmem(NULL, NULL, NULL, NULL, 2), QMP_INVALID_ARG);
    NOTHING(QMP_declare_strided_array_msgmem(NULL, NULL, NULL, NULL, -2), QMP_INVALID_ARG);
}

static void qmp_040_messages_that_are_too_large(void)
{
    NOTHING(QMP_declare_msgmem(value, (size_t)-1), QMP_MEMSIZE_TOOBIG);
    NOTHING(QMP_declare_strided_msgmem(value, (size_t)1 << 40, 1 << 30, 1), QMP_MEMSIZE_TOOBIG);
}

static void qmp_043_qmp_126_invalid_nodes(void)
{
    QMP_msgmem_t mem = QMP_declare_msgmem(value, sizeof value);
    NOTHING(QMP_declare_send_to(mem, size, 0), QMP_NODE_OUTRANGE);
    NOTHING(QMP_declare_receive_from(mem, -1, 0), QMP_NODE_OUTRANGE);
    NOTHING(QMP_comm_declare_send_to(NULL, mem, 0, 0), QMP_INVALID_ARG);
    int dims[2] = {1, size};
    WORKS(QMP_declare_logical_topology(dims, 2));
    NOTHING(QMP_declare_send_relative(mem, 2, 1, 0), QMP_INVALID_ARG);
    NOTHING(QMP_declare_send_relative(mem, -1, 1, 0), QMP_INVALID_ARG);
    NOTHING(QMP_declare_receive_relative(mem, 1, 0, 0), QMP_INVALID_ARG);
    QMP_free_msgmem(mem);
}

static void qmp_036_qmp_037_invalid_handles(void)
{
    QMP_msgmem_t mem = QMP_declare_msgmem(value, sizeof value);
    QMP_msghandle_t send = QMP_declare_send_to(mem, rank, 0), foreign = (QMP_msghandle_t)(void *)value;
    QMP_msghandle_t twice[2] = {send, send}, bad[2] = {send, foreign};
    NOTHING(QMP_declare_multiple(twice, 2), QMP_BAD_MESSAGE);
    NOTHING(QMP_declare_multiple(bad, 2), QMP_BAD_MESSAGE);
    NOTHING(QMP_declare_multiple(NULL, 2), QMP_INVALID_ARG);
    NOTHING(QMP_declare_multiple(bad, -1), QMP_INVALID_ARG);
    REFUSED(QMP_start(foreign), QMP_BAD_MESSAGE);
    REFUSED(QMP_start(NULL), QMP_BAD_MESSAGE);
    REFUSED(QMP_wait(foreign), QMP_BAD_MESSAGE);
    REFUSED(QMP_wait_all(bad + 1, 1), QMP_BAD_MESSAGE);
    REFUSED(QMP_wait_all(NULL, 1), QMP_INVALID_ARG);
    REFUSED(QMP_clear_to_send(foreign, QMP_CTS_READY), QMP_BAD_MESSAGE);
    REFUSED(QMP_clear_to_send(send, (QMP_clear_to_send_t)7), QMP_INVALID_ARG);
    REFUSED(QMP_change_address(foreign, value), QMP_BAD_MESSAGE);
    REFUSED(QMP_change_address(send, NULL), QMP_BAD_MEMORY);
    EQUAL(QMP_is_complete(foreign), QMP_TRUE);
    EQUAL(QMP_get_error_number(foreign), QMP_BAD_MESSAGE);
    WORKS(QMP_wait(send));
    QMP_free_msghandle(send);
    REFUSED(QMP_start(send), QMP_BAD_MESSAGE);
    QMP_free_msghandle(send);
    EQUAL(QMP_get_error_number(NULL), QMP_BAD_MESSAGE);
    QMP_free_msghandle(NULL);
    QMP_free_msgmem(mem);
}

static void qmp_046_starting_freeing_and_moving_active_messages(void)
{
    int out = rank, in = -1;
    struct pair self = declare_pair(&out, sizeof out, rank, &in, sizeof in, rank);
    QMP_msghandle_t send = self.send, receive = self.receive;
    WORKS(QMP_start(receive));
    REFUSED(QMP_start(receive), QMP_INVALID_OP);
    EQUAL(QMP_get_error_number(receive), QMP_INVALID_OP);
    CHECK(strstr(QMP_get_error_string(receive), "QMP_INVALID_OP"), "%s", QMP_get_error_string(receive));
    REFUSED(QMP_change_address(receive, value), QMP_INVALID_OP);
    NOTHING(QMP_declare_multiple(&receive, 1), QMP_INVALID_OP);
    QMP_free_msghandle(receive);
    EQUAL(QMP_get_error_number(NULL), QMP_INVALID_OP);
    EQUAL(QMP_is_complete(receive), QMP_FALSE);
    EQUAL(QMP_get_error_number(receive), QMP_SUCCESS);
    WORKS(QMP_start(send));
    WORKS(QMP_wait(receive));
    WORKS(QMP_wait(send));
    EQUAL(in, rank);
    free_pair(self);
}

// A hint without a start has no effect: the message goes to the receive that is started first, and the handle can be freed.
static void qmpl_042_receives_that_are_cleared_and_never_started(void)
{
    int out = rank, in = -1, other = -1;
    struct pair self = declare_pair(&out, sizeof out, rank, &in, sizeof in, rank);
    QMP_msgmem_t mem = QMP_declare_msgmem(&other, sizeof other);
    QMP_msghandle_t cleared = QMP_declare_receive_from(mem, rank, 0);
    WORKS(QMP_clear_to_send(self.send, QMP_CTS_READY));
    WORKS(QMP_clear_to_send(cleared, QMP_CTS_DISABLED));
    WORKS(QMP_clear_to_send(cleared, QMP_CTS_READY));
    WORKS(QMP_clear_to_send(cleared, QMP_CTS_READY));
    WORKS(QMP_start(self.receive));
    REFUSED(QMP_clear_to_send(self.receive, QMP_CTS_READY), QMP_INVALID_OP);
    WORKS(QMP_start(self.send));
    WORKS(QMP_wait(self.send));
    WORKS(QMP_wait(self.receive));
    EQUAL(in, rank);
    EQUAL(other, -1);
    WORKS(QMP_clear_to_send(cleared, QMP_CTS_READY));
    QMP_free_msghandle(cleared);
    EQUAL(QMP_get_error_number(NULL), QMP_SUCCESS);
    in = -1;
    WORKS(QMP_start(self.send));
    WORKS(QMP_start(self.receive));
    WORKS(QMP_wait(self.send));
    WORKS(QMP_wait(self.receive));
    EQUAL(in, rank);
    EQUAL(other, -1);
    free_pair(self);
    QMP_free_msgmem(mem);
}

// A message that is too long is an error at both ends, and the next one is complete again.
static void qmp_029_messages_that_are_too_long(void)
{
    enum { LARGE = 100000 };
    static char out[LARGE], in[LARGE];
    for (int wrong = 0; wrong < 2; wrong++) {
        struct pair ring = declare_pair(out, LARGE, (rank + 1) % size, in, wrong ? LARGE / 2 : LARGE, (rank + size - 1) % size);
        WORKS(QMP_start(ring.receive));
        WORKS(QMP_start(ring.send));
        int receive_status = QMP_wait(ring.receive), send_status = QMP_wait(ring.send);
        EQUAL(receive_status, wrong ? QMP_MEMSIZE_ERR : QMP_SUCCESS);
        EQUAL(send_status, wrong ? QMP_MEMSIZE_ERR : QMP_SUCCESS);
        EQUAL(QMP_get_error_number(ring.receive), wrong ? QMP_MEMSIZE_ERR : QMP_SUCCESS);
        free_pair(ring);
    }
}

// A small message may be complete at its sender before its receive is started; the sender gets the error at its next call.
static void qmp_029_small_messages_that_are_too_long(void)
{
    static char out[10], in[5], other[4];
    char expected[200];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    QMP_comm_t comm;
    WORKS(QMP_comm_split(QMP_comm_get_default(), 0, 0, &comm));
    // A test for completion lets others make progress.
    QMP_msgmem_t mem = QMP_declare_msgmem(other, sizeof other);
    QMP_msghandle_t idle[2] = {QMP_comm_declare_receive_from(comm, mem, rank, 0), QMP_comm_declare_send_to(comm, mem, rank, 0)};
    WORKS(QMP_start(idle[0]));
    for (int k = 0; k < 12; k++) {
        struct pair ring = declare_pair(out, sizeof out, next, in, sizeof in, before);
        WORKS(QMP_start(k % 2 ? ring.receive : ring.send));
        if (k % 3 == 0)
            WORKS(QMP_barrier());
        WORKS(QMP_start(k % 2 ? ring.send : ring.receive));
        REFUSED(QMP_wait(ring.receive), QMP_MEMSIZE_ERR);
        snprintf(expected, sizeof expected, "the message of 10 bytes from node %d is longer than its receive, which has room for 5", before);
        CHECK(strstr(QMP_get_error_string(ring.receive), expected), "%s", QMP_get_error_string(ring.receive));
        int status = QMP_wait(ring.send), is_late = status == QMP_SUCCESS;
        for (; status == QMP_SUCCESS; status = QMP_wait(ring.send))
            EQUAL(QMP_is_complete(idle[0]), QMP_FALSE);
        EQUAL(status, QMP_MEMSIZE_ERR);
        snprintf(expected, sizeof expected, "%s message of 10 bytes to node %d", is_late ? "an earlier" : "the", next);
        CHECK(strstr(QMP_get_error_string(ring.send), expected), "%s", QMP_get_error_string(ring.send));
        WORKS(QMP_wait(ring.send));
        free_pair(ring);
    }
    WORKS(QMP_start(idle[1]));
    WORKS(QMP_wait(idle[0]));
    WORKS(QMP_wait(idle[1]));
    QMP_free_msghandle(idle[0]);
    QMP_free_msghandle(idle[1]);
    QMP_free_msgmem(mem);
    WORKS(QMP_comm_free(comm));
}

static void qmp_047_a_message_that_is_never_sent(void)
{
    int in = -1, out = rank;
    struct pair self = declare_pair(&out, sizeof out, rank, &in, sizeof in, rank);
    WORKS(QMP_start(self.receive));
    REFUSED(QMP_wait(self.receive), QMP_TIMEOUT);
    EQUAL(QMP_get_error_number(self.receive), QMP_TIMEOUT);
    // It can still arrive.
    WORKS(QMP_start(self.send));
    WORKS(QMP_wait(self.receive));
    WORKS(QMP_wait(self.send));
    EQUAL(in, rank);
    free_pair(self);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (argc > 1) {
        RUN(qmp_047_a_message_that_is_never_sent);
        return end();
    }
    RUN(qmp_041_qmp_028_invalid_memory);
    RUN(qmp_040_messages_that_are_too_large);
    RUN(qmp_043_qmp_126_invalid_nodes);
    RUN(qmp_036_qmp_037_invalid_handles);
    RUN(qmp_046_starting_freeing_and_moving_active_messages);
    RUN(qmpl_042_receives_that_are_cleared_and_never_started);
    RUN(qmp_029_messages_that_are_too_long);
    RUN(qmp_029_small_messages_that_are_too_long);
    return end();
}
