// SPDX-License-Identifier: MIT OR Apache-2.0
// One wrong call under MPI_ERRORS_ARE_FATAL: the job must end with a message that states what was given, what was
// expected and what to do. `fatal CASE`; testlist has the texts that must be printed.
#include "check.h"

static int value, numbers[64];
static char small[8];

static void wrong_rank(void)
{
    MPI_Send(&value, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
}

static void wrong_tag(void)
{
    MPI_Send(&value, 1, MPI_INT, 0, -7, MPI_COMM_WORLD);
}

static void wrong_count(void)
{
    MPI_Send(&value, -3, MPI_INT, 0, 0, MPI_COMM_WORLD);
}

static void wrong_datatype(void)
{
    MPI_Datatype type;
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Send(&value, 1, type, 0, 0, MPI_COMM_WORLD);
}

static void wrong_communicator(void)
{
    MPI_Barrier(MPI_COMM_NULL);
}

static void wrong_root(void)
{
    MPI_Bcast(&value, 1, MPI_INT, 64, MPI_COMM_WORLD);
}

static void stale_communicator(void)
{
    MPI_Comm comm, copy;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    copy = comm;
    MPI_Comm_free(&comm);
    MPI_Barrier(copy);
}

static void stale_request(void)
{
    MPI_Request request, copy;
    MPI_Recv_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
    copy = request;
    MPI_Request_free(&request);
    MPI_Wait(&copy, MPI_STATUS_IGNORE);
}

static void truncated(void)
{
    if (rank == 1)
        MPI_Send(numbers, 64, MPI_INT, 0, 7, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Recv(small, sizeof small, MPI_BYTE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void null_buffer(void)
{
    MPI_Send(NULL, 4, MPI_INT, 0, 0, MPI_COMM_WORLD);
}

static void no_buffer_attached(void)
{
    MPI_Bsend(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
}

static void unsupported(void)
{
    MPI_Win win;
    MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
}

static void init_twice(void)
{
    MPI_Init(NULL, NULL);
}

static void added_code(void)
{
    int class, code;
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "the weather is bad");
    MPI_Comm_call_errhandler(MPI_COMM_WORLD, code);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"rank", wrong_rank},       {"tag", wrong_tag},
    {"count", wrong_count},     {"datatype", wrong_datatype},
    {"comm", wrong_communicator}, {"root", wrong_root},
    {"stale-comm", stale_communicator}, {"stale-request", stale_request},
    {"truncate", truncated},    {"buffer", null_buffer},
    {"bsend", no_buffer_attached}, {"unsupported", unsupported},
    {"init-twice", init_twice}, {"added-code", added_code},
};

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : "";
    if (!strcmp(wanted, "before-init"))
        MPI_Barrier(MPI_COMM_WORLD);
    start(&argc, &argv);
    if (!strcmp(wanted, "after-finalize")) {
        MPI_Finalize();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < COUNT_OF(cases); i++)
        if (!strcmp(wanted, cases[i].name) && (rank == 0 || !strcmp(wanted, "truncate")))
            cases[i].run();
    // The ranks without a wrong call wait here, but the job must end.
    MPI_Recv(&value, 1, MPI_INT, rank, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}
