// SPDX-License-Identifier: MIT OR Apache-2.0
// Keeps the bursts of a shared port and all other calls of drivers apart. Bursts are frequent and the other calls rare,
// so a burst takes no lock: it marks its port, and then looks whether the drivers are locked. Who locks the drivers does
// it the other way round: it sets `rmpi_drivers_are_locked`, and then looks at the marks and waits for them to go.
//
// Both sides store, and then load what the other stores. Without a barrier between the two steps both could load the old
// values. A barrier in every burst takes as long as a lock, so the rare side makes one for both: membarrier(2) returns
// when every running thread of the process has passed a full barrier. A burst whose mark is not visible then looks after
// that, and finds the drivers locked. If the system has no membarrier, bursts take the lock.
#define _GNU_SOURCE
#include "port.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/membarrier.h>

atomic_int rmpi_drivers_are_locked;
_Atomic(struct rmpi_dpdk_port *) rmpi_shared_ports;

static pthread_mutex_t drivers = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
// How often the owner of the lock has locked it.
static unsigned depth;
// Whether bursts run without the lock: 0 before the first lock, 1 yes, -1 no.
static int is_asymmetric;

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

// Waits until no other thread is in a burst.
static void wait_for_bursts(void)
{
    uintptr_t own = (uintptr_t)pthread_self();
    struct rmpi_dpdk_port *port = atomic_load_explicit(&rmpi_shared_ports, memory_order_acquire);
    for (; port; port = port->next_shared) {
        uintptr_t bursting;
        while ((bursting = atomic_load_explicit(&port->bursting, memory_order_acquire)) && bursting != own)
            sched_yield();
    }
}

void rmpi_lock_drivers(void)
{
    pthread_mutex_lock(&drivers);
    if (depth++)
        return;
    if (!is_asymmetric)
        is_asymmetric = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) ? -1 : 1;
    atomic_store_explicit(&rmpi_drivers_are_locked, 1, memory_order_seq_cst);
    if (is_asymmetric > 0 && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        is_asymmetric = -1;
    wait_for_bursts();
}

void rmpi_unlock_drivers(void)
{
    if (!--depth && is_asymmetric > 0)
        atomic_store_explicit(&rmpi_drivers_are_locked, 0, memory_order_release);
    pthread_mutex_unlock(&drivers);
}

void rmpi_wait_to_burst(struct rmpi_dpdk_port *port)
{
    // The owner of the lock must not wait for this burst.
    atomic_store_explicit(&port->bursting, 0, memory_order_release);
    pthread_mutex_lock(&drivers);
    // The next owner of the lock finds this mark.
    atomic_store_explicit(&port->bursting, (uintptr_t)pthread_self(), memory_order_relaxed);
    pthread_mutex_unlock(&drivers);
}
