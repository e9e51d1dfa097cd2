// SPDX-License-Identifier: MIT OR Apache-2.0
// Two ports of one process that send to each other through two software rings, for tests: `net_ring_pair_NAME_0` and
// `net_ring_pair_NAME_1`. Buffers are passed on by reference, so lent memory is referenced by the receiver as by a
// network card.
#define _GNU_SOURCE
#include "port.h"

#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ring.h>

enum { PLACES = 512 };

// The prefix that the driver puts in front of the name of a port made of rings.
static const char DRIVER[] = "net_ring_";

// The end of the pair, or -1 if the device is none.
static int end_of(const char *device)
{
    size_t length = strlen(device);
    if (strncmp(device, "net_ring_pair_", 14) || length < 16 || device[length - 2] != '_')
        return -1;
    int end = device[length - 1] - '0';
    return end == 0 || end == 1 ? end : -1;
}

// The ring into which that end sends.
static struct rte_ring *ring_of(const char *device, int end)
{
    char name[RTE_RING_NAMESIZE];
    const char *pair = device + strlen(DRIVER);
    snprintf(name, sizeof name, "rmpi-%.*s_%d", (int)strlen(pair) - 2, pair, end);
    struct rte_ring *ring = rte_ring_lookup(name);
    return ring ? ring : rte_ring_create(name, PLACES, SOCKET_ID_ANY, 0);
}

int rmpi_pair_make(const char *device)
{
    int end = end_of(device);
    if (end < 0)
        return -ENODEV;
    struct rte_ring *sends = ring_of(device, end), *receives = ring_of(device, 1 - end);
    if (!sends || !receives)
        return -rte_errno;
    return rte_eth_from_rings(device + strlen(DRIVER), &receives, 1, &sends, 1, 0) < 0 ? -rte_errno : 0;
}

void rmpi_pair_drain(const char *device)
{
    int end = end_of(device);
    struct rte_ring *sends = end < 0 ? NULL : ring_of(device, end);
    void *buffer;
    while (sends && !rte_ring_dequeue(sends, &buffer))
        rte_pktmbuf_free(buffer);
}
