// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP: after the declarations, starts and waits neither allocate memory, nor take a lock, nor copy twice.
#define _GNU_SOURCE
#include "qmp_check.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

// The first starts exchange the addresses of memory with the peers.
enum { DIRECTIONS = 8, WARM = 30, ROUNDS = 50 };

// Statistics of libqmp's private interface: bytes moved directly, packed, sent ahead; writes, gates, allocations; bytes in frames,
// malformed frames.
int rmpi_channel_counters(uint64_t counters[8]);
enum { DIRECT, PACKED, AHEAD, WRITES, GATES, ALLOCATIONS, STREAMED, NONSENSE };

// Replaces the allocator of the whole process, including its libraries.
static int is_counting;
static unsigned long allocations, locked;
static int (*lock_really)(pthread_mutex_t *);
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    allocations += is_counting;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations += is_counting;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    allocations += is_counting;
    return __libc_realloc(old, bytes);
}

int posix_memalign(void **place, size_t alignment, size_t bytes)
{
    allocations += is_counting;
    *place = __libc_memalign(alignment, bytes);
    return *place ? 0 : ENOMEM;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    locked += is_counting;
    return lock_really(mutex);
}

// Eight faces out and eight in, to and from neighbours on a ring, with one handle.
static QMP_msghandle_t declare_halo(unsigned char *out, unsigned char *in, size_t face)
{
    QMP_msghandle_t all[2 * DIRECTIONS];
    for (int d = 0; d < DIRECTIONS; d++) {
        int to = (rank + d / 2 + 1) % size, from = (rank + size * DIRECTIONS - d / 2 - 1) % size;
        all[d] = QMP_declare_receive_from(QMP_declare_msgmem(in + d * face, face), from, 0);
        all[DIRECTIONS + d] = QMP_declare_send_to(QMP_declare_msgmem(out + d * face, face), to, 0);
    }
    QMP_msghandle_t halo = QMP_declare_multiple(all, 2 * DIRECTIONS);
    CHECK(halo != NULL, "%s", QMP_get_error_string(NULL));
    return halo;
}

static void exchange(QMP_msghandle_t halo, unsigned char *out, unsigned char *in, size_t face, int k)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        out[d * face] = (unsigned char)(rank + d + k);
        in[d * face] = 0xee;
    }
    WORKS(QMP_start(halo));
    WORKS(QMP_wait(halo));
    for (int d = 0; d < DIRECTIONS; d++) {
        int from = (rank + size * DIRECTIONS - d / 2 - 1) % size;
        EQUAL(in[d * face], (unsigned char)(from + d + k));
    }
}

static void starts_are_quiet(size_t face, bool is_allocated)
{
    size_t bytes = DIRECTIONS * face;
    QMP_mem_t *mem = is_allocated ? QMP_allocate_memory(2 * bytes) : NULL;
    unsigned char *out = mem ? QMP_get_memory_pointer(mem) : calloc(2, bytes), *in = out + bytes;
    QMP_msghandle_t halo = declare_halo(out, in, face);
    for (int k = 0; k < WARM; k++)
        exchange(halo, out, in, face, k);
    uint64_t before[8], after[8];
    EQUAL(rmpi_channel_counters(before), 0);
    allocations = locked = 0;
    is_counting = 1;
    for (int k = 0; k < ROUNDS; k++)
        exchange(halo, out, in, face, k);
    is_counting = 0;
    EQUAL(rmpi_channel_counters(after), 0);
    // Between hosts, tcp keeps a copy of sent data until they are acknowledged.
    if (on_one_host()) {
        EQUAL(allocations, 0ul);
        EQUAL(locked, 0ul);
    }
    EQUAL(after[ALLOCATIONS], before[ALLOCATIONS]);
    EQUAL(after[NONSENSE], 0ull);
    if (mem && face > 4096 && on_one_host()) {
        // Exactly one copy of every byte.
        EQUAL(after[DIRECT] - before[DIRECT], (uint64_t)ROUNDS * bytes);
        EQUAL(after[PACKED], before[PACKED]);
        EQUAL(after[AHEAD], before[AHEAD]);
        EQUAL(after[STREAMED], before[STREAMED]);
    }
    QMP_free_msghandle(halo);
    if (mem)
        QMP_free_memory(mem);
    else
        free(out);
}

// Faces of a lattice with their sites far apart, in memory of QMP: strided at both ends, at one, and indexed.
static void gaps_cost_no_copy(size_t block, int blocks)
{
    size_t face = block * (size_t)blocks;
    QMP_mem_t *mem = QMP_allocate_memory(6 * face);
    unsigned char *out = QMP_get_memory_pointer(mem), *in = out + 3 * face;
    int to = (rank + 1) % size, from = (rank + size - 1) % size, lengths[2], indices[2];
    for (int shape = 0; shape < 3; shape++) {
        QMP_msgmem_t away = QMP_declare_strided_msgmem(out, block, blocks, 3 * (ptrdiff_t)block);
        QMP_msgmem_t here = QMP_declare_msgmem(in, face);
        if (shape == 1) {
            QMP_free_msgmem(here);
            here = QMP_declare_strided_msgmem(in, block / 2, 2 * blocks, (ptrdiff_t)block);
        } else if (shape == 2) {
            QMP_free_msgmem(here);
            lengths[0] = (int)block;
            lengths[1] = (int)(face - block);
            indices[0] = (int)face;
            indices[1] = 0;
            here = QMP_declare_indexed_msgmem(in, lengths, indices, 1, 2);
        }
        QMP_msghandle_t both[2] = {QMP_declare_receive_from(here, from, 0), QMP_declare_send_to(away, to, 0)};
        QMP_msghandle_t all = QMP_declare_multiple(both, 2);
        uint64_t before[8], after[8];
        for (int k = 0; k < WARM + ROUNDS; k++) {
            if (k == WARM) {
                EQUAL(rmpi_channel_counters(before), 0);
                allocations = locked = 0;
            }
            is_counting = k >= WARM;
            memset(out, rank + k, block);
            in[shape == 2 ? face : 0] = 0xee;
            WORKS(QMP_start(all));
            WORKS(QMP_wait(all));
            EQUAL(in[shape == 2 ? face : 0], (unsigned char)(from + k));
            is_counting = 0;
        }
        EQUAL(rmpi_channel_counters(after), 0);
        EQUAL(after[ALLOCATIONS], before[ALLOCATIONS]);
        if (on_one_host()) {
            EQUAL(allocations, 0ul);
            EQUAL(locked, 0ul);
            EQUAL(after[DIRECT] - before[DIRECT], (uint64_t)ROUNDS * face);
            EQUAL(after[PACKED], before[PACKED]);
        }
        QMP_free_msghandle(all);
        QMP_free_msgmem(here);
        QMP_free_msgmem(away);
    }
    QMP_free_memory(mem);
}

int main(int argc, char **argv)
{
    lock_really = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    begin(&argc, &argv);
    const size_t faces[] = {8, 1024, 4096, 65536, 262144};
    for (int i = 0; i < COUNT_OF(faces); i++) {
        starts_are_quiet(faces[i], true);
        starts_are_quiet(faces[i], false);
    }
    gaps_cost_no_copy(512, 100);
    gaps_cost_no_copy(40000, 5);
    return end();
}
