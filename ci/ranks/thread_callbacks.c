// SPDX-License-Identifier: MIT OR Apache-2.0
// Callback functions of the program may wait for another thread that calls MPI: MPI 5.0 section 11.6. Here each
// callback function returns only after the other thread's call has returned, as may happen in a program whose threads
// share a lock.
#include "check.h"

#include <pthread.h>
#include <sched.h>

static volatile int asked, answered, stop;

static void wait_for_the_other(void)
{
    int number = answered;
    asked = number + 1;
    while (answered == number)
        sched_yield();
}

static void *other(void *unused)
{
    int n;
    while (!stop) {
        if (asked == answered) {
            sched_yield();
            continue;
        }
        MPI_Comm_size(MPI_COMM_WORLD, &n);
        EQUAL(n, size);
        answered = asked;
    }
    return unused;
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    wait_for_the_other();
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void s6_9_5_operations(void)
{
    enum { MANY = 6 };
    int one = 1, sum[MANY] = {0};
    MPI_Request requests[MANY];
    MPI_Op op;
    MPI_Op_create(add, 1, &op);
    MPI_Reduce_local(&one, &sum[0], 1, MPI_INT, op);
    EQUAL(sum[0], 1);
    MPI_Allreduce(&one, &sum[0], 1, MPI_INT, op, MPI_COMM_WORLD);
    EQUAL(sum[0], size);
    for (int i = 0; i < MANY; i++)
        MPI_Iallreduce(&one, &sum[i], 1, MPI_INT, op, MPI_COMM_WORLD, &requests[i]);
    MPI_Op_free(&op);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        EQUAL(sum[i], size);
}

static int copy(MPI_Comm comm, int key, void *state, void *value, void *out, int *flag)
{
    (void)comm, (void)key, (void)state;
    wait_for_the_other();
    *(void **)out = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    wait_for_the_other();
    return MPI_SUCCESS;
}

static void s7_7_2_attribute_functions(void)
{
    int key, flag = 0;
    void *value = NULL;
    MPI_Comm made;
    MPI_Comm_create_keyval(copy, delete, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    MPI_Comm_dup(MPI_COMM_SELF, &made);
    MPI_Comm_get_attr(made, key, &value, &flag);
    CHECK(flag && value == &key, "flag %d", flag);
    MPI_Comm_free(&made);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    MPI_Comm_free_keyval(&key);
}

static int query(void *state, MPI_Status *status)
{
    (void)state;
    wait_for_the_other();
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int release(void *state)
{
    wait_for_the_other();
    *(int *)state += 1;
    return MPI_SUCCESS;
}

static int cancel(void *state, int complete)
{
    wait_for_the_other();
    *(int *)state += complete ? 100 : 10;
    return MPI_SUCCESS;
}

static void s13_2_generalized_requests(void)
{
    int called = 0, count = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Grequest_start(query, release, cancel, &called, &request);
    MPI_Cancel(&request);
    MPI_Grequest_complete(request);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    EQUAL(count, 3);
    EQUAL(called, 11);
}

static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    wait_for_the_other();
    handled++;
}

static void s9_3_error_handlers(void)
{
    MPI_Errhandler handler, old;
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &old);
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_call_errhandler(MPI_COMM_SELF, MPI_ERR_OTHER);
    FAILS(MPI_Send(NULL, 0, MPI_INT, 7, 0, MPI_COMM_SELF), MPI_ERR_RANK);
    EQUAL(handled, 2);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, old);
    MPI_Errhandler_free(&handler);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    start_threads(&argc, &argv);
    pthread_create(&thread, NULL, other, NULL);
    RUN(s6_9_5_operations);
    RUN(s7_7_2_attribute_functions);
    RUN(s13_2_generalized_requests);
    RUN(s9_3_error_handlers);
    stop = 1;
    pthread_join(thread, NULL);
    return finish();
}
