// SPDX-License-Identifier: MIT OR Apache-2.0
// Generalized requests: MPI 5.0 section 13.2.
#include "check.h"
#include <pthread.h>

struct work {
    int queried, freed, cancelled, complete_then, items, answer;
};

static int query(void *extra, MPI_Status *status)
{
    struct work *work = extra;
    work->queried++;
    MPI_Status_set_elements(status, MPI_INT, work->items);
    MPI_Status_set_cancelled(status, work->cancelled > 0);
    status->MPI_SOURCE = 3;
    status->MPI_TAG = 4;
    return work->answer;
}

static int release(void *extra)
{
    struct work *work = extra;
    // Allowed: it calls MPI.
    int flag;
    MPI_Initialized(&flag);
    work->freed += flag;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    struct work *work = extra;
    work->cancelled++;
    work->complete_then = complete;
    return MPI_SUCCESS;
}

static void s13_2_status_of_the_program(void)
{
    struct work work = {.items = 5};
    MPI_Request request, copy;
    MPI_Status status;
    int done = 1, count = -1;
    GOOD(MPI_Grequest_start(query, release, cancel, &work, &request));
    copy = request;
    GOOD(MPI_Test(&request, &done, &status));
    EQUAL(done, 0);
    EQUAL(work.queried, 0);
    GOOD(MPI_Grequest_complete(request));
    GOOD(MPI_Request_get_status(request, &done, &status));
    EQUAL(done, 1);
    EQUAL(work.freed, 0);
    GOOD(MPI_Wait(&request, &status));
    CHECK(request == MPI_REQUEST_NULL, "the request is not null");
    GOOD(MPI_Get_count(&status, MPI_INT, &count));
    EQUAL(count, 5);
    EQUAL(status.MPI_SOURCE, 3);
    EQUAL(status.MPI_TAG, 4);
    EQUAL(work.queried, 2);
    EQUAL(work.freed, 1);
    FAILS(MPI_Grequest_complete(copy), MPI_ERR_REQUEST);
}

static void s13_2_cancelled(void)
{
    struct work work = {.complete_then = -1};
    MPI_Request request;
    MPI_Status status;
    int cancelled = 0;
    GOOD(MPI_Grequest_start(query, release, cancel, &work, &request));
    GOOD(MPI_Cancel(&request));
    EQUAL(work.cancelled, 1);
    EQUAL(work.complete_then, 0);
    GOOD(MPI_Grequest_complete(request));
    GOOD(MPI_Wait(&request, &status));
    GOOD(MPI_Test_cancelled(&status, &cancelled));
    EQUAL(cancelled, 1);
}

static void s13_2_freed_before_and_after(void)
{
    struct work early = {0}, late = {0};
    MPI_Request first, second, kept;
    GOOD(MPI_Grequest_start(query, release, cancel, &early, &first));
    kept = first;
    GOOD(MPI_Request_free(&first));
    CHECK(first == MPI_REQUEST_NULL, "the request is not null");
    EQUAL(early.freed, 0);
    GOOD(MPI_Grequest_complete(kept));
    EQUAL(early.freed, 1);
    GOOD(MPI_Grequest_start(query, release, cancel, &late, &second));
    GOOD(MPI_Grequest_complete(second));
    GOOD(MPI_Request_free(&second));
    EQUAL(late.freed, 1);
    EQUAL(early.queried + late.queried, 0);
}

static void s13_2_among_others(void)
{
    struct work work = {.items = 1};
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int in = -1, out = rank, count = 0;
    GOOD(MPI_Irecv(&in, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[0]));
    GOOD(MPI_Grequest_start(query, release, cancel, &work, &requests[1]));
    GOOD(MPI_Isend(&out, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[2]));
    GOOD(MPI_Grequest_complete(requests[1]));
    GOOD(MPI_Waitall(3, requests, statuses));
    EQUAL(in, (rank + size - 1) % size);
    GOOD(MPI_Get_count(&statuses[1], MPI_INT, &count));
    EQUAL(count, 1);
    EQUAL(work.freed, 1);
}

static void s13_2_errors_of_the_program(void)
{
    struct work work = {.answer = MPI_ERR_IO};
    MPI_Request request;
    GOOD(MPI_Grequest_start(query, release, cancel, &work, &request));
    GOOD(MPI_Grequest_complete(request));
    FAILS(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_IO);
    EQUAL(work.freed, 1);
    FAILS(MPI_Grequest_start(NULL, release, cancel, &work, &request), MPI_ERR_ARG);
}

static void *complete_later(void *request)
{
    MPI_Grequest_complete(*(MPI_Request *)request);
    return NULL;
}

static void s13_2_completed_by_another_thread(void)
{
    struct work work = {0};
    MPI_Request request, handed;
    pthread_t thread;
    GOOD(MPI_Grequest_start(query, release, cancel, &work, &request));
    handed = request;
    pthread_create(&thread, NULL, complete_later, &handed);
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
    pthread_join(thread, NULL);
    EQUAL(work.freed, 1);
}

int main(int argc, char **argv)
{
    start_threads(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    RUN(s13_2_status_of_the_program);
    RUN(s13_2_cancelled);
    RUN(s13_2_freed_before_and_after);
    RUN(s13_2_among_others);
    RUN(s13_2_errors_of_the_program);
    RUN(s13_2_completed_by_another_thread);
    return finish();
}
