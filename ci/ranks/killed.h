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

#endif
