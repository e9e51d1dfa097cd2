// SPDX-License-Identifier: MIT OR Apache-2.0
// For tests in which a rank is killed and the others continue.
#ifndef KILLED_H
#define KILLED_H
#include "check.h"

static int victim;

// Checks the error of a call that needed the victim: the message names the victim and the signal.
UNUSED static void told_of(int error, const char *what)
{
    char text[MPI_MAX_ERROR_STRING], name[32];
    int length;
    CHECK(error != MPI_SUCCESS, "%s was done without rank %d", what, victim);
    MPI_Error_string(error, text, &length);
    snprintf(name, sizeof name, "rank %d ", victim);
    CHECK(strstr(text, name) && strstr(text, "SIGKILL"), "%s: \"%s\"", what, text);
}

// Ends a rank that was not killed; `living` are all of these. Rank 0 prints a line if none of them found an error.
// Returns the exit code of main.
UNUSED static int finish_living(MPI_Comm living)
{
    int wrong = check_errors, all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, living);
    MPI_Comm_free(&living);
    MPI_Finalize();
    if (rank == 0 && all == 0)
        puts("the others are through");
    return 0;
}

#endif
