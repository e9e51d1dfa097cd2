// SPDX-License-Identifier: MIT OR Apache-2.0
// Control variables of rmpi: a value that a tool writes before MPI_Init takes effect; MPI 5.0 section 15.3.6.
// MPIT-064, MPIT-096, MPIT-097, MPIT-112, MPIT-121, MPIT-123
#include "check.h"

static MPI_T_cvar_handle find(const char *name, int *count)
{
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    int index = -1;
    GOOD(MPI_T_cvar_get_index(name, &index));
    GOOD(MPI_T_cvar_handle_alloc(index, NULL, &handle, count));
    return handle;
}

static void s15_3_6_values_are_checked(void)
{
    int count, wait = -1, bad = 3;
    unsigned long long limit = 0, large = 8193;
    char list[64], wrong[64] = "shm,udp";
    MPI_T_cvar_handle handle = find("RMPI_EAGER_LIMIT", &count);
    EQUAL(count, 1);
    EQUAL(MPI_T_cvar_write(handle, &large), MPI_T_ERR_INVALID);
    EQUAL(MPI_T_cvar_write(handle, NULL), MPI_T_ERR_INVALID);
    GOOD(MPI_T_cvar_read(handle, &limit));
    EQUAL(limit, 4096);
    MPI_T_cvar_handle freed = handle;
    GOOD(MPI_T_cvar_handle_free(&handle));
    EQUAL(MPI_T_cvar_read(freed, &limit), MPI_T_ERR_INVALID_HANDLE);
    handle = find("RMPI_WAIT", &count);
    EQUAL(MPI_T_cvar_write(handle, &bad), MPI_T_ERR_INVALID);
    GOOD(MPI_T_cvar_read(handle, &wait));
    EQUAL(wait, 0);
    GOOD(MPI_T_cvar_handle_free(&handle));
    handle = find("RMPI_PROVIDERS", &count);
    EQUAL(count, sizeof "self,shm,verbs,tcp,roce,dpdk");
    EQUAL(MPI_T_cvar_write(handle, wrong), MPI_T_ERR_INVALID);
    memset(wrong, 's', sizeof wrong);
    EQUAL(MPI_T_cvar_write(handle, wrong), MPI_T_ERR_INVALID);
    GOOD(MPI_T_cvar_write(handle, "SHM"));
    GOOD(MPI_T_cvar_read(handle, list));
    CHECK(!strcmp(list, "shm"), "%s", list);
    GOOD(MPI_T_cvar_handle_free(&handle));
    handle = find("RMPI_QMP_TIMEOUT", &count);
    EQUAL(MPI_T_cvar_write(handle, &limit), MPI_T_ERR_CVAR_SET_NEVER);
    GOOD(MPI_T_cvar_handle_free(&handle));
}

static void s15_3_6_descriptions_say_who_may_write(void)
{
    int num;
    GOOD(MPI_T_cvar_get_num(&num));
    for (int i = 0; i < num; i++) {
        char text[4096];
        int length = sizeof text, scope;
        GOOD(MPI_T_cvar_get_info(i, 0, 0, 0, 0, 0, text, &length, 0, &scope));
        const char *wanted = scope == MPI_T_SCOPE_READONLY ? "Set by the environment alone."
                             : scope == MPI_T_SCOPE_LOCAL ? "ranks may have different values."
                                                           : "all ranks have to write the same value.";
        CHECK(strstr(text, wanted), "%s", text);
    }
}

// With an eager limit of 0 a message is sent by rendezvous, so its send completes only when it is received.
static void s15_3_6_what_was_written_steers(void)
{
    double word = 3.5, got = 0;
    int done = 0, go = 1;
    MPI_Request request;
    if (rank == 0) {
        MPI_Isend(&word, 1, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD, &request);
        for (int i = 0; i < 1000; i++) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            EQUAL(done, 0);
        }
        MPI_Send(&go, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(&go, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&got, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == word, "%f", got);
    }
}

int main(int argc, char **argv)
{
    int provided, count;
    unsigned long long limit = 0, now = 77;
    setenv("RMPI_EAGER_LIMIT", "4K", 1);
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    s15_3_6_values_are_checked();
    s15_3_6_descriptions_say_who_may_write();
    MPI_T_cvar_handle handle = find("RMPI_EAGER_LIMIT", &count);
    GOOD(MPI_T_cvar_write(handle, &limit));
    start(&argc, &argv);
    RUN(s15_3_6_what_was_written_steers);
    GOOD(MPI_T_cvar_read(handle, &now));
    EQUAL(now, 0);
    MPI_T_cvar_handle fixed = find("RMPI_STREAM_CHUNK", &count);
    limit = 4096;
    EQUAL(MPI_T_cvar_write(fixed, &limit), MPI_T_ERR_CVAR_SET_NOT_NOW);
    limit = 8193;
    EQUAL(MPI_T_cvar_write(handle, &limit), MPI_T_ERR_INVALID);
    GOOD(MPI_T_cvar_read(handle, &now));
    EQUAL(now, 0);
    GOOD(MPI_T_finalize());
    EQUAL(MPI_T_cvar_read(handle, &now), MPI_T_ERR_NOT_INITIALIZED);
    return finish();
}
