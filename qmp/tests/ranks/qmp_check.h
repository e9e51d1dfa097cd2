// SPDX-License-Identifier: MIT OR Apache-2.0
// What the QMP programs here share. Their tests are named after the lines of the list of demands that they test.
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

// REFUSED(call, QMP_X): it returns that code, which is that of the last operation too.
#define REFUSED(call, wanted)                                                                      \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        CHECK(code_ == (wanted), "status %#x, expected %#x (%s)", code_, wanted, #wanted);         \
        EQUAL(QMP_get_error_number(NULL), wanted);                                                 \
        CHECK(strstr(QMP_get_error_string(NULL), #wanted), "%s", QMP_get_error_string(NULL));      \
    } while (0)

// NOTHING(call, QMP_X): it returns NULL, and the last operation ended with that code.
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

// A grid of all nodes with as many axes as asked, the first ones two thick as long as that goes.
UNUSED static void two_thick(int dims[], int axes)
{
    int left = size;
    for (int i = 0; i < axes; i++) {
        dims[i] = i == axes - 1 ? left : left % 2 == 0 ? 2 : 1;
        left /= dims[i];
    }
}

#endif
