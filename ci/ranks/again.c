// SPDX-License-Identifier: MIT OR Apache-2.0
// Several MPI programs one after the other in one rank, as a script starts them; each has an
// MPI_COMM_WORLD of its own. `again` is the script, `again child NUMBER` one of the programs.
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void child(const char *number)
{
    int sum = 0, mine = atoi(number) + rank, from = (rank + size - 1) % size, got = -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(sum, size * atoi(number) + size * (size - 1) / 2);
    // A message that the first program did not receive must not reach the second.
    MPI_Request request;
    MPI_Isend(&mine, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD, &request);
    if (strcmp(number, "1")) {
        MPI_Recv(&got, 1, MPI_INT, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EQUAL(got, atoi(number) + from);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        start(&argc, &argv);
        child(argv[2]);
        return check_errors != 0;
    }
    for (int number = 1; number <= 3; number++) {
        char text[12];
        snprintf(text, sizeof text, "%d", number);
        pid_t pid = fork();
        if (pid == 0) {
            execl(argv[0], argv[0], "child", text, (char *)NULL);
            _exit(127);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        if (status != 0)
            return 1;
    }
    puts("ok");
    return 0;
}
