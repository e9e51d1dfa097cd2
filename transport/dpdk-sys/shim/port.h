/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of the plug-in have of each other; nothing of it is seen outside. */
#ifndef RMPI_PORT_H
#define RMPI_PORT_H

#include "rmpi_dpdk.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

enum {
    /* Frames of one call. */
    BURST = 64,
    RECEIVES = 1024,
    SENDS = 512,
    /* Frames in the hands of the library, beside those of the two queues. */
    SPARE = 512,
};

struct rmpi_dpdk_port {
    /* Name and arguments, and what frames it was made ready for. */
    char *device;
    uint32_t frame_bytes;
    uint16_t mtu;
    int wanted_in_place;
    int is_ready;
    /* It has one owner, since calls for it never meet. */
    int is_open;
    uint16_t id;
    uint16_t receives;
    uint16_t sends;
    struct rte_mempool *pool;
    /* Frames may lead to memory that is lent to the device (lent.c); the buffers that do so, and what stands behind them. */
    int in_place;
    struct rte_mempool *parts;
    /* Bursts of one that is not are errors. */
    int is_started;
    int is_up;
    uint32_t calls;
    /* It connects to another process when it is started, and never again by itself: the client of a memif. When it was started last. */
    int connects;
    uint64_t connected_at;
    uint32_t pause_ms;
    /* What DPDK's own thread does with it, it does behind a lock. */
    int is_shared;
};

extern pthread_mutex_t rmpi_drivers;

/* Keeps DPDK's own thread out of the driver. It may be called again by who has called it. */
static inline void lock(const struct rmpi_dpdk_port *port)
{
    if (port->is_shared)
        pthread_mutex_lock(&rmpi_drivers);
}

static inline void unlock(const struct rmpi_dpdk_port *port)
{
    if (port->is_shared)
        pthread_mutex_unlock(&rmpi_drivers);
}

/* Starts the device of a port that is set up. 0, or DPDK's error. */
int rmpi_port_begin(struct rmpi_dpdk_port *port);

/* A queue for what it sends, in the place of the one before, if there was one. */
int rmpi_port_set_up_sends(struct rmpi_dpdk_port *port);

/* A pool of buffers with so much room each. */
struct rte_mempool *rmpi_port_make_pool(const char *what, uint16_t id, uint32_t count, uint32_t room);

/* Whether the device is on a bus, and reads memory itself. */
int rmpi_port_is_on_bus(const struct rmpi_dpdk_port *port);

/* Whether frames of this device may lead to memory that is lent to it, and should where nobody says. */
int rmpi_port_can_send_in_place(const struct rmpi_dpdk_port *port, const struct rte_eth_dev_info *info);
int rmpi_port_should_send_in_place(const struct rmpi_dpdk_port *port);

/* Makes one end of a pair of ports of this process; -ENODEV: the device is none. */
int rmpi_pair_make(const char *device);

/* Takes back what such an end has sent and nobody has received. Of another device nothing. */
void rmpi_pair_drain(const char *device);

/* Whether the processor has what makes the checksum fast. */
int rmpi_crc_is_fast(void);

uint32_t rmpi_crc(uint32_t crc, const uint8_t *from, size_t bytes);

#endif
