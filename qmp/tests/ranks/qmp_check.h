// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by the QMP programs here. Their tests are named after the requirements that they test.
#ifndef QMP_CHECK_H
#define QMP_CHECK_H

#include "check.h"
#include <qmp.h>

// WORKS(call): it returns QMP_SUCCESS.
#define WORKS(call)                                                                                \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        CHECK(code_ == QMP_SUCCESS, "%s", QMP_get_error_string(NULL));                             \
    } while (0)

// REFUSED(call, QMP_X): it returns that code, which is also that of the last operation.
#define REFUSED(call, wanted)                                                                      \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        CHECK(code_ == (wanted), "status %#x, expected %#x (%s)", code_, wanted, #wanted);         \
        EQUAL(QMP_get_error_number(NULL), wanted);                                                 \
        CHECK(strstr(QMP_get_error_string(NULL), #wanted), "%s", QMP_get_error_string(NULL));      \
    } while (0)

// NOTHING(call, QMP_X): it returns NULL, and the last operation has that code.
#define NOTHING(call, wanted)                                                                      \
    do {                                                                                           \
        CHECK((call) == NULL, "a handle was expected not to be made");                             \
        EQUAL(QMP_get_error_number(NULL), wanted);                                                 \
        CHECK(strstr(QMP_get_error_string(NULL), #wanted), "%s", QMP_get_error_string(NULL));      \
    } while (0)

UNUSED static void begin(int *argc, char ***argv)
{
    QMP_thread_level_t provided;
    int code = QMP_init_msg_passing(argc, argv, QMP_THREAD_SINGLE, &provided);
    if (code != QMP_SUCCESS) {
        fprintf(stderr, "QMP_init_msg_passing: %s\n", QMP_get_error_string(NULL));
        exit(97);
    }
    rank = QMP_get_node_number();
    size = QMP_get_number_of_nodes();
}

// As finish of check.h.
UNUSED static int end(void)
{
    QMP_finalize_msg_passing();
    if (check_errors > 0) {
        fprintf(stderr, "node %d: %d errors\n", rank, check_errors);
        return 1;
    }
    puts("ok");
    fflush(stdout);
    return 0;
}

// A grid of all nodes with the given number of axes, with two nodes along the first axes as far as possible.
UNUSED static void two_thick(int dims[], int axes)
{
    int left = size;
    for (int i = 0; i < axes; i++) {
        dims[i] = i == axes - 1 ? left : left % 2 == 0 ? 2 : 1;
        left /= dims[i];
    }
}

// One message, and another: what this node sends, and what it receives.
struct pair {
    QMP_msgmem_t out, in;
    QMP_msghandle_t send, receive;
};

UNUSED static struct pair declare_pair(void *out, size_t out_bytes, int to, void *in, size_t in_bytes, int from)
{
    struct pair pair = {.out = QMP_declare_msgmem(out, out_bytes), .in = QMP_declare_msgmem(in, in_bytes)};
    pair.send = QMP_declare_send_to(pair.out, to, 0);
    pair.receive = QMP_declare_receive_from(pair.in, from, 0);
    return pair;
}

UNUSED static void free_pair(struct pair pair)
{
    QMP_free_msghandle(pair.send);
    QMP_free_msghandle(pair.receive);
    QMP_free_msgmem(pair.out);
    QMP_free_msgmem(pair.in);
}

#endif
