// SPDX-License-Identifier: MIT OR Apache-2.0
// Counters of MPI_T in tests: by how much a counter rises between two points of a program. The program opens and frees
// `session`.
#ifndef COUNTING_H
#define COUNTING_H
#include "check.h"

static MPI_T_pvar_session session;

static MPI_T_pvar_handle begin(const char *name)
{
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index = -1, count = 0;
    GOOD(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index));
    GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    GOOD(MPI_T_pvar_start(session, handle));
    return handle;
}

static unsigned long long end(MPI_T_pvar_handle handle)
{
    unsigned long long value = ~0ull;
    GOOD(MPI_T_pvar_read(session, handle, &value));
    GOOD(MPI_T_pvar_handle_free(session, &handle));
    return value;
}

#endif
