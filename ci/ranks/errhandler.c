// SPDX-License-Identifier: MIT OR Apache-2.0
// Error handlers, classes, codes and strings: MPI 5.0 chapter 9.3 to 9.5.
#include "check.h"

static int called, last_code;
static MPI_Comm last_comm;

static void count_calls(MPI_Comm *comm, int *code, ...)
{
    called++;
    last_code = *code;
    last_comm = *comm;
}

static int send_to_nobody(MPI_Comm comm)
{
    int value = 0;
    return MPI_Send(&value, 1, MPI_INT, size + 5, 0, comm);
}

static void s9_3_errors_return(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    GOOD(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    FAILS(send_to_nobody(comm), MPI_ERR_RANK);
    // After an error the communicator still works.
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1;
    GOOD(MPI_Sendrecv(&rank, 1, MPI_INT, right, 0, &in, 1, MPI_INT, left, 0, comm, MPI_STATUS_IGNORE));
    EQUAL(in, left);
    MPI_Comm_free(&comm);
}

static void s9_3_1_a_handler_of_ones_own_is_called(void)
{
    MPI_Errhandler handler;
    MPI_Comm comm;
    called = 0;
    GOOD(MPI_Comm_create_errhandler(count_calls, &handler));
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    GOOD(MPI_Comm_set_errhandler(comm, handler));
    int code = send_to_nobody(comm), class;
    EQUAL(called, 1);
    // The standard does not define what the call returns after its handler has returned; it may be the code or success.
    CHECK(code == last_code || code == MPI_SUCCESS, "returned %d, the handler got %d", code, last_code);
    CHECK(last_comm == comm, "the handler was given another communicator");
    MPI_Error_class(last_code, &class);
    EQUAL(class, MPI_ERR_RANK);
    // The handle may be freed; the handler exists until no communicator uses it.
    GOOD(MPI_Errhandler_free(&handler));
    CHECK(handler == MPI_ERRHANDLER_NULL, "the freed handle is still set");
    send_to_nobody(comm);
    EQUAL(called, 2);
    MPI_Comm_free(&comm);
}

static void s9_3_1_get_gives_back_what_was_set(void)
{
    MPI_Errhandler handler, got;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    GOOD(MPI_Comm_get_errhandler(comm, &got));
    CHECK(got == MPI_ERRORS_RETURN, "another handler came back");
    MPI_Comm_create_errhandler(count_calls, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    GOOD(MPI_Comm_get_errhandler(comm, &got));
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    called = 0;
    GOOD(MPI_Comm_set_errhandler(comm, got));
    send_to_nobody(comm);
    EQUAL(called, 1);
    MPI_Errhandler_free(&got);
    MPI_Comm_free(&comm);
}

// Section 7.4.2: a duplicate inherits the handler.
static void s9_3_a_duplicate_inherits_the_handler(void)
{
    MPI_Comm first, second;
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    MPI_Comm_set_errhandler(first, MPI_ERRORS_RETURN);
    MPI_Comm_dup(first, &second);
    FAILS(send_to_nobody(second), MPI_ERR_RANK);
    MPI_Comm_free(&first);
    MPI_Comm_free(&second);
}

static void s9_3_world_starts_with_errors_are_fatal(void)
{
    MPI_Errhandler got;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got);
    CHECK(got == MPI_ERRORS_ARE_FATAL, "the first handler is another one");
}

static void s9_5_call_errhandler(void)
{
    MPI_Errhandler handler;
    MPI_Comm comm;
    called = 0;
    MPI_Comm_create_errhandler(count_calls, &handler);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    GOOD(MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER));
    EQUAL(called, 1);
    EQUAL(last_code, MPI_ERR_OTHER);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    GOOD(MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER));
    EQUAL(called, 1);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
}

static void s9_3_4_what_is_no_handler_cannot_be_freed(void)
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    FAILS(MPI_Errhandler_free(&handler), MPI_ERR_ERRHANDLER);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &handler);
    GOOD(MPI_Errhandler_free(&handler));
    CHECK(handler == MPI_ERRHANDLER_NULL, "the freed handle is still set");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

// Section 9.4: each class has a text, its class is itself, and MPI_SUCCESS is 0.
static void s9_4_every_class_has_a_text(void)
{
    static const int classes[] = {
        MPI_SUCCESS,      MPI_ERR_BUFFER,   MPI_ERR_COUNT,     MPI_ERR_TYPE,     MPI_ERR_TAG,
        MPI_ERR_COMM,     MPI_ERR_RANK,     MPI_ERR_REQUEST,   MPI_ERR_ROOT,     MPI_ERR_GROUP,
        MPI_ERR_OP,       MPI_ERR_TOPOLOGY, MPI_ERR_DIMS,      MPI_ERR_ARG,      MPI_ERR_UNKNOWN,
        MPI_ERR_TRUNCATE, MPI_ERR_OTHER,    MPI_ERR_INTERN,    MPI_ERR_PENDING,  MPI_ERR_IN_STATUS,
        MPI_ERR_ACCESS,   MPI_ERR_AMODE,    MPI_ERR_ASSERT,    MPI_ERR_BAD_FILE, MPI_ERR_BASE,
        MPI_ERR_DISP,     MPI_ERR_FILE,     MPI_ERR_INFO,      MPI_ERR_INFO_KEY, MPI_ERR_INFO_NOKEY,
        MPI_ERR_IO,       MPI_ERR_KEYVAL,   MPI_ERR_LOCKTYPE,  MPI_ERR_NAME,     MPI_ERR_NO_MEM,
        MPI_ERR_SIZE,     MPI_ERR_SPAWN,    MPI_ERR_UNSUPPORTED_OPERATION,       MPI_ERR_WIN,
        MPI_ERR_PROC_ABORTED, MPI_ERR_VALUE_TOO_LARGE, MPI_ERR_SESSION, MPI_ERR_ERRHANDLER,
    };
    int last = MPI_ERR_LASTCODE;
    for (int i = 0; i < COUNT_OF(classes); i++) {
        char text[MPI_MAX_ERROR_STRING];
        int length = -1, class = -1;
        memset(text, 'x', sizeof text);
        GOOD(MPI_Error_class(classes[i], &class));
        EQUAL(class, classes[i]);
        GOOD(MPI_Error_string(classes[i], text, &length));
        CHECK(length > 0 && length < MPI_MAX_ERROR_STRING, "length %d", length);
        CHECK(memchr(text, 0, sizeof text) == text + length, "the text of %d is not %d long", classes[i],
              length);
        CHECK(classes[i] <= last, "class %d is above MPI_ERR_LASTCODE", classes[i]);
    }
    EQUAL(MPI_SUCCESS, 0);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s9_3_world_starts_with_errors_are_fatal);
    RUN(s9_3_errors_return);
    RUN(s9_3_1_a_handler_of_ones_own_is_called);
    RUN(s9_3_1_get_gives_back_what_was_set);
    RUN(s9_3_a_duplicate_inherits_the_handler);
    RUN(s9_5_call_errhandler);
    RUN(s9_3_4_what_is_no_handler_cannot_be_freed);
    RUN(s9_4_every_class_has_a_text);
    return finish();
}
