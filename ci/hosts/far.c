// SPDX-License-Identifier: MIT OR Apache-2.0
// The program of the checks of jobs over several hosts: `far MODE [ARGUMENT...]`.
//
// who             each rank prints its host, and how many ranks share its memory
// args ...        the last rank prints its other arguments, each with its length
// env NAME        each rank prints its working folder and the variable NAME
// size            the last rank prints how many bytes its arguments and its environment have
// lines COUNT     each rank prints COUNT lines
// copy            rank 0 copies its standard input to its standard output
// ring BYTES      each rank sends BYTES bytes to the next and checks what it receives
// often BYTES TIMES  as ring, TIMES times, with different data each time
// count NAME BYTES TIMES  as often, and each rank prints by how much its performance variable NAME rose
// leave RANK CODE this rank exits with this code, while the others wait for it
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int rank, size;

static void who(void)
{
    char host[MPI_MAX_PROCESSOR_NAME];
    int length, near;
    MPI_Comm node;
    MPI_Get_processor_name(host, &length);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &near);
    MPI_Comm_free(&node);
    printf("rank %d of %d on %s, %d share its memory\n", rank, size, host, near);
}

static long bytes_of(char **words)
{
    long bytes = 0;
    for (; *words != NULL; words++)
        bytes += (long)strlen(*words) + 1;
    return bytes;
}

static void copy(void)
{
    static char buffer[1 << 16];
    size_t count;
    while ((count = fread(buffer, 1, sizeof buffer, stdin)) > 0)
        fwrite(buffer, 1, count, stdout);
}

static void lines(int count)
{
    for (int i = 0; i < count; i++)
        printf("rank %d line %d of %d, and some more words to make it long enough\n", rank, i, count);
}

static void ring(int bytes, int times)
{
    unsigned char *mine = malloc(bytes), *other = malloc(bytes);
    int next = (rank + 1) % size, before = (rank + size - 1) % size, right = 1;
    for (int time = 0; time < times; time++) {
        for (int i = 0; i < bytes; i++)
            mine[i] = (unsigned char)(i * 7 + rank + time);
        MPI_Sendrecv(mine, bytes, MPI_BYTE, next, 5, other, bytes, MPI_BYTE, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < bytes; i++)
            right &= other[i] == (unsigned char)(i * 7 + before + time);
    }
    printf("rank %d has %s %d bytes\n", rank, right ? "all" : "lost some of", bytes);
    free(mine);
    free(other);
}

// Prints by how much a performance variable rises during the messages.
static void count(const char *name, int bytes, int times)
{
    int index, thread, elements;
    unsigned long long value = 0;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &thread);
    int has = !MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) && !MPI_T_pvar_session_create(&session) &&
              !MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &elements);
    if (has)
        MPI_T_pvar_start(session, handle);
    ring(bytes, times);
    has = has && !MPI_T_pvar_read(session, handle, &value);
    printf(has ? "rank %d has %llu %s\n" : "rank %d has no %llu %s\n", rank, value, name);
}

static void tell(int argc, char **argv)
{
    const char *word = argv[1];
    int is_last = rank == size - 1;
    if (!strcmp(word, "who"))
        who();
    if (!strcmp(word, "args") && is_last)
        for (int i = 2; i < argc; i++)
            printf("%zu <%s>\n", strlen(argv[i]), argv[i]);
    if (!strcmp(word, "env") && argc > 2) {
        const char *value = getenv(argv[2]);
        char *folder = get_current_dir_name();
        printf("rank %d in %s: %s\n", rank, folder, value == NULL ? "(nothing)" : value);
        free(folder);
    }
    if (!strcmp(word, "size") && is_last)
        printf("%d arguments, %ld bytes, environment %ld bytes\n", argc, bytes_of(argv),
               bytes_of(environ));
    if (!strcmp(word, "lines") && argc > 2)
        lines(atoi(argv[2]));
    if (!strcmp(word, "copy") && rank == 0)
        copy();
    if (!strcmp(word, "ring") && argc > 2)
        ring(atoi(argv[2]), 1);
    if (!strcmp(word, "often") && argc > 3)
        ring(atoi(argv[2]), atoi(argv[3]));
    if (!strcmp(word, "count") && argc > 4)
        count(argv[2], atoi(argv[3]), atoi(argv[4]));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        tell(argc, argv);
    fflush(stdout);
    if (argc > 3 && !strcmp(argv[1], "leave") && atoi(argv[2]) == rank)
        exit(atoi(argv[3]));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
