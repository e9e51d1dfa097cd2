// SPDX-License-Identifier: MIT OR Apache-2.0
// MPI_INFO_ENV and MPI_Info_create_env: MPI 5.0 sections 10 and 11.2.1. Both give the same values before and after
// MPI_Init; MPI_Info_create_env gives them after MPI_Finalize too.
#include "check.h"

static const char *keys[] = {"command", "argv",     "maxprocs", "soft",        "host",
                             "arch",    "wdir",     "file",     "thread_level"};
enum { KEYS = COUNT_OF(keys) };
static char before[KEYS][MPI_MAX_INFO_VAL];

static void look(MPI_Info info, int first)
{
    for (int i = 0; i < KEYS; i++) {
        char value[MPI_MAX_INFO_VAL] = "";
        int room = sizeof value, found;
        MPI_Info_get_string(info, keys[i], &room, value, &found);
        if (!found)
            strcpy(value, "(none)");
        if (first)
            strcpy(before[i], value);
        CHECK(!strcmp(before[i], value), "%s was %s and is %s", keys[i], before[i], value);
    }
}

static void create_and_look(int argc, char **argv, int first)
{
    MPI_Info info;
    GOOD(MPI_Info_create_env(argc, argv, &info));
    look(info, first);
    GOOD(MPI_Info_free(&info));
}

int main(int argc, char **argv)
{
    create_and_look(argc, argv, 1);
    look(MPI_INFO_ENV, 0);
    start(&argc, &argv);
    create_and_look(argc, argv, 0);
    look(MPI_INFO_ENV, 0);
    char count[12];
    snprintf(count, sizeof count, "%d", size);
    CHECK(!strcmp(before[2], count), "maxprocs is %s of %s", before[2], count);
    MPI_Finalize();
    create_and_look(argc, argv, 0);
    if (check_errors == 0)
        puts("ok");
    return check_errors != 0;
}
