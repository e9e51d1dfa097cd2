// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP: no node waits for one that has left. Node 0 finalises QMP while the others wait for it, in every state of a message; `comm`:
// it frees a communicator; `died`, under `rmpiexec --keep-going`: it is killed.
#include "qmp_check.h"
#include <signal.h>
#include <unistd.h>

enum { SMALL = 16, LARGE = 100000, KINDS = 3 };
// Number of earlier messages in both directions: none, few (frames), and enough for gates without frames.
static const int rounds[KINDS] = {0, 1, 6};
static const char *how = "left";
static char out[LARGE], in[LARGE];
static QMP_comm_t comm;

struct ends {
    QMP_msgmem_t mems[2];
    QMP_msghandle_t send, receive;
};

static struct ends declare(int peer, size_t bytes)
{
    struct ends it = {.mems = {QMP_declare_msgmem(out, bytes), QMP_declare_msgmem(in, bytes)}};
    it.send = QMP_comm_declare_send_to(comm, it.mems[0], peer, 0);
    it.receive = QMP_comm_declare_receive_from(comm, it.mems[1], peer, 0);
    return it;
}

static void forget(struct ends it)
{
    QMP_free_msghandle(it.send);
    QMP_free_msghandle(it.receive);
    QMP_free_msgmem(it.mems[0]);
    QMP_free_msgmem(it.mems[1]);
}

static void exchange(int peer, size_t bytes, int count)
{
    struct ends it = declare(peer, bytes);
    for (int k = 0; k < count; k++) {
        WORKS(QMP_start(it.receive));
        WORKS(QMP_start(it.send));
        WORKS(QMP_wait(it.receive));
        WORKS(QMP_wait(it.send));
    }
    forget(it);
}

static void check_error(QMP_msghandle_t handle, const char *what)
{
    char text[100];
    REFUSED(QMP_wait(handle), QMP_ERROR);
    if (strcmp(how, "died") == 0)
        snprintf(text, sizeof text, "node 0 is lost: ");
    else
        snprintf(text, sizeof text, "node 0 will never %s the message: it has finalised QMP", what);
    CHECK(strstr(QMP_get_error_string(handle), text), "%s", QMP_get_error_string(handle));
    EQUAL(QMP_get_error_number(handle), QMP_ERROR);
}

// Messages that node 0 sent before it left arrive, and nothing else is waited for, neither now nor later.
static void operations_with_node_0_fail(void)
{
    struct ends small = declare(0, SMALL), large = declare(0, LARGE);
    if (strcmp(how, "died") != 0) {
        WORKS(QMP_start(small.receive));
        WORKS(QMP_wait(small.receive));
        EQUAL(in[SMALL - 1], 'w');
    }
    for (int again = 0; again < 2; again++) {
        WORKS(QMP_start(rank % 2 ? large.receive : large.send));
        check_error(rank % 2 ? large.receive : large.send, rank % 2 ? "send" : "receive");
        WORKS(QMP_start(small.receive));
        check_error(small.receive, "send");
        WORKS(QMP_start(large.send));
        check_error(large.send, "receive");
        WORKS(QMP_start(small.send));
        check_error(small.send, "receive");
    }
    forget(small);
    forget(large);
}

// Its last message, for which no receive is started yet.
static void node_0_finalizes(void)
{
    struct ends last[64];
    memset(out, 'w', SMALL);
    for (int node = 1; node < size && strcmp(how, "died") != 0; node++) {
        last[node] = declare(node, SMALL);
        WORKS(QMP_start(last[node].send));
        WORKS(QMP_wait(last[node].send));
        forget(last[node]);
    }
    // Some nodes wait already, and some do not.
    usleep(20000);
    if (strcmp(how, "died") == 0)
        raise(SIGKILL);
    if (strcmp(how, "comm") == 0)
        WORKS(QMP_comm_free(comm));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (argc > 1)
        how = argv[1];
    comm = QMP_comm_get_default();
    if (strcmp(how, "comm") == 0)
        WORKS(QMP_comm_split(comm, 0, 0, &comm));
    for (int node = 1; node < size; node++)
        if (rank == 0)
            exchange(node, node % 2 ? SMALL : LARGE, rounds[node % KINDS]);
        else if (rank == node)
            exchange(0, node % 2 ? SMALL : LARGE, rounds[node % KINDS]);
    if (rank == 0)
        RUN(node_0_finalizes);
    else
        RUN(operations_with_node_0_fail);
    if (strcmp(how, "comm") == 0)
        WORKS(QMP_barrier());
    if (strcmp(how, "died") == 0) {
        QMP_finalize_msg_passing();
        if (check_errors == 0 && rank == 1)
            puts("the others are through");
        return check_errors > 0;
    }
    return end();
}
