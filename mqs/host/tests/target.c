// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that looks like a rank of some MPI, for `probe.c`.
#include <stdio.h>
#include <unistd.h>

typedef struct {
    char kind;
    long number;
} probe_item_t;

struct struct_tag {
    int only;
};

char MPIR_dll_name[] = PROBE;
probe_item_t probe_item = {'k', -12345678901L};
struct struct_tag probe_tag;

void probe_function(void) {}
int MPI_Init(int *argc, char ***argv) { return argc == (void *)argv; }

int main(void)
{
    puts("pending");
    fflush(stdout);
    for (;;)
        pause();
}
