/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Declarations shared by the files of the plug-in; none of them is exported. */
#ifndef RMPI_PORT_H
#define RMPI_PORT_H

#include "rmpi_dpdk.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

enum {
    /* Frames in one call. */
    BURST = 64,
    RECEIVES = 1024,
    SENDS = 512,
    /* Frames held by the library, beside those in the two queues. */
    SPARE = 512,
};

struct rmpi_dpdk_port {
    /* Name and arguments, and the frames it was set up for. */
    char *device;
    uint32_t frame_bytes;
    uint16_t mtu;
    int wanted_in_place;
    int is_ready;
    /* It has one owner, since calls for it are never concurrent. */
    int is_open;
    uint16_t id;
    uint16_t receives;
    uint16_t sends;
    struct rte_mempool *pool;
    /* Frames may refer to memory lent to the device (lent.c); the pool of buffers that refer to it, and of those behind them. */
    int in_place;
    struct rte_mempool *parts;
    /* Bursts on a stopped device are errors. */
    int is_started;
    int is_up;
    uint32_t calls;
    /* It connects to another process when it is started, and does not reconnect by itself: the client of a memif. Time of the last start. */
    int connects;
    uint64_t connected_at;
    uint32_t pause_ms;
    /* DPDK's own thread uses it too, while no burst runs (turnstile.c). The thread in whose burst it is; 0: none. */
    int is_shared;
    atomic_uintptr_t bursting;
    struct rmpi_dpdk_port *next_shared;
};

/* All shared ports. They are never freed. */
extern _Atomic(struct rmpi_dpdk_port *) rmpi_shared_ports;

/* Waits until no other thread is in a driver or in a burst of a shared port, and keeps them out. Recursive. */
void rmpi_lock_drivers(void);
void rmpi_unlock_drivers(void);

/* Whether a thread has locked the drivers, or waits for bursts to end. Set for ever if bursts have to take the lock. */
extern atomic_int rmpi_drivers_are_locked;

/* The rest of begin_burst, if the drivers are locked. */
void rmpi_wait_to_burst(struct rmpi_dpdk_port *port);

/* Locks out DPDK's own thread from the driver. The lock is recursive. */
static inline void lock(const struct rmpi_dpdk_port *port)
{
    if (port->is_shared)
        rmpi_lock_drivers();
}

static inline void unlock(const struct rmpi_dpdk_port *port)
{
    if (port->is_shared)
        rmpi_unlock_drivers();
}

/* Begins a burst: it takes no lock as long as nobody has locked the drivers. Why that is enough: see turnstile.c. */
static inline void begin_burst(struct rmpi_dpdk_port *port)
{
    if (!port->is_shared)
        return;
    atomic_store_explicit(&port->bursting, (uintptr_t)pthread_self(), memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&rmpi_drivers_are_locked, memory_order_acquire), 0))
        rmpi_wait_to_burst(port);
}

static inline void end_burst(struct rmpi_dpdk_port *port)
{
    if (port->is_shared)
        atomic_store_explicit(&port->bursting, 0, memory_order_release);
}

/* Starts the device of a port that is set up. Returns 0 or DPDK's error. */
int rmpi_port_begin(struct rmpi_dpdk_port *port);

/* Sets up the send queue, in place of the previous one, if there was one. */
int rmpi_port_set_up_sends(struct rmpi_dpdk_port *port);

/* Creates a pool of `count` buffers with `room` bytes each. */
struct rte_mempool *rmpi_port_make_pool(const char *what, uint16_t id, uint32_t count, uint32_t room);

/* Whether it is a PCI device, which reads memory itself (DMA). */
int rmpi_port_is_on_bus(const struct rmpi_dpdk_port *port);

/* Whether frames of this device may refer to lent memory, and whether they should by default. */
int rmpi_port_can_send_in_place(const struct rmpi_dpdk_port *port, const struct rte_eth_dev_info *info);
int rmpi_port_should_send_in_place(const struct rmpi_dpdk_port *port);

/* Creates one end of a pair of ports of this process; -ENODEV: the device is none. */
int rmpi_pair_make(const char *device);

/* Frees the frames that such an end has sent and the other has not received. No effect on other devices. */
void rmpi_pair_drain(const char *device);

/* Whether the processor has the instructions for a fast checksum. */
int rmpi_crc_is_fast(void);

uint32_t rmpi_crc(uint32_t crc, const uint8_t *from, size_t bytes);

#endif
