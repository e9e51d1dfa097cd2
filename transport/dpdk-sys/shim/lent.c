// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory of the program that is lent to a device: a payload in it is not copied into a frame. Such a frame consists of
// three buffers: the headers, an indirect one that refers to the memory, and the rest behind it.
//
// Each buffer that refers to the memory holds a reference (`shared`), until its owner frees it: the device, or the
// library for a frame that was not sent. So L1: while the count is above 1, a device may read the memory, and otherwise
// none does. Memory is returned (rmpi_dpdk_forget) when the count is 1.
// DMA mapping exists since release 19.05, and was marked experimental until 24.
#define ALLOW_EXPERIMENTAL_API
#define _GNU_SOURCE
#include "port.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memory.h>

enum {
    // A buffer that refers to memory, and one behind it.
    PARTS = 2,
    // Room of the latter: padding and a checksum.
    TAIL_BYTES = 8,
    // How long a device may take to free sent frames, in milliseconds.
    RECLAIM_MS = 50,
    // Number and length of frames that push others through the device.
    FILLERS = 32,
    FILLER_BYTES = 60,
};

struct rmpi_dpdk_memory {
    // 1, plus 1 for each buffer that refers to it.
    struct rte_mbuf_ext_shared_info shared;
    // The range that the device can access: for a PCI device, the whole pages in it.
    uint8_t *base;
    size_t bytes;
    int is_mapped;
};

// By the PCI address in its name, as in start.rs: names of virtual devices have several forms.
int rmpi_port_is_on_bus(const struct rmpi_dpdk_port *port)
{
    return memchr(port->device, ':', strcspn(port->device, ",")) != NULL;
}

int rmpi_port_can_send_in_place(const struct rmpi_dpdk_port *port, const struct rte_eth_dev_info *info)
{
    uint16_t most = info->tx_desc_lim.nb_mtu_seg_max;
    if (!(info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) || (most && most < 1 + PARTS) || !rmpi_crc_is_fast())
        return 0;
    // Physical addresses of the program's pages are unknown, and may change. With an IOMMU the device takes virtual
    // addresses.
    if (rmpi_port_is_on_bus(port))
        return rte_eal_iova_mode() == RTE_IOVA_VA;
    // These copy frames from any memory, or pass them on within the process. A device that shares DPDK's own memory
    // with another process cannot share any other.
    static const char *const COPYING[] = {"net_af_packet", "net_memif", "net_tap", "net_ring"};
    for (size_t i = 0; i < RTE_DIM(COPYING); i++)
        if (!strncmp(port->device, COPYING[i], strlen(COPYING[i])))
            return !strstr(port->device, "zero-copy=yes");
    return 0;
}

int rmpi_port_should_send_in_place(const struct rmpi_dpdk_port *port)
{
    return rmpi_port_is_on_bus(port);
}

// The count never drops to 0: the memory's own reference is kept.
static void keep_memory(void *address, void *argument)
{
    (void)address, (void)argument;
}

static int is_back(struct rmpi_dpdk_memory *memory)
{
    return rte_mbuf_ext_refcnt_read(&memory->shared) == 1;
}

// Maps whole pages in the IOMMU. The pages at the ends may be partly other memory, and are not mapped.
static int map(const struct rmpi_dpdk_port *port, struct rmpi_dpdk_memory *memory)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *begin = RTE_PTR_ALIGN_CEIL(memory->base, page), *end = RTE_PTR_ALIGN_FLOOR(memory->base + memory->bytes, page);
    struct rte_eth_dev_info info;
    if (begin >= end || rte_eth_dev_info_get(port->id, &info))
        return -1;
    memory->base = begin;
    memory->bytes = (size_t)(end - begin);
    if (rte_extmem_register(begin, memory->bytes, NULL, 0, page))
        return -1;
    if (rte_dev_dma_map((struct rte_device *)info.device, begin, (uintptr_t)begin, memory->bytes)) {
        rte_extmem_unregister(begin, memory->bytes);
        return -1;
    }
    memory->is_mapped = 1;
    return 0;
}

static void unmap(const struct rmpi_dpdk_port *port, const struct rmpi_dpdk_memory *memory)
{
    struct rte_eth_dev_info info;
    if (!memory->is_mapped)
        return;
    if (!rte_eth_dev_info_get(port->id, &info))
        rte_dev_dma_unmap((struct rte_device *)info.device, memory->base, (uintptr_t)memory->base, memory->bytes);
    rte_extmem_unregister(memory->base, memory->bytes);
}

struct rmpi_dpdk_memory *rmpi_dpdk_lend(struct rmpi_dpdk_port *port, void *base, size_t bytes)
{
    if (!port->in_place)
        return NULL;
    struct rmpi_dpdk_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    *memory = (struct rmpi_dpdk_memory){.base = base, .bytes = bytes};
    memory->shared.free_cb = keep_memory;
    rte_mbuf_ext_refcnt_set(&memory->shared, 1);
    if (rmpi_port_is_on_bus(port) && map(port, memory)) {
        free(memory);
        return NULL;
    }
    return memory;
}

static int holds(const struct rmpi_dpdk_memory *memory, const uint8_t *from, uint32_t bytes)
{
    return from >= memory->base && bytes <= memory->bytes && (size_t)(from - memory->base) <= memory->bytes - bytes;
}

int rmpi_dpdk_attach(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frame, struct rmpi_dpdk_memory *memory, const uint8_t *from,
                     uint32_t bytes, uint32_t pad, uint32_t crc)
{
    static const uint8_t ZEROS[TAIL_BYTES];
    struct rte_mbuf *head = frame->buffer, *parts[PARTS];
    if (bytes > UINT16_MAX || pad + sizeof crc > TAIL_BYTES || !holds(memory, from, bytes) ||
        rte_pktmbuf_alloc_bulk(port->parts, parts, PARTS))
        return -1;
    rte_mbuf_ext_refcnt_update(&memory->shared, 1);
    rte_pktmbuf_attach_extbuf(parts[0], (void *)(uintptr_t)from, (uintptr_t)from, (uint16_t)bytes, &memory->shared);
    rte_pktmbuf_append(parts[0], (uint16_t)bytes);
    uint8_t *tail = (uint8_t *)rte_pktmbuf_append(parts[1], (uint16_t)(pad + sizeof crc));
    memset(tail, 0, pad);
    uint32_t sum = rte_cpu_to_le_32(rmpi_crc(rmpi_crc(crc, from, bytes), ZEROS, pad));
    memcpy(tail + pad, &sum, sizeof sum);
    head->data_len = (uint16_t)frame->bytes;
    head->next = parts[0];
    parts[0]->next = parts[1];
    head->nb_segs = 1 + PARTS;
    head->pkt_len = frame->bytes + bytes + pad + sizeof sum;
    return 0;
}

// Replaces references in unsent frames by copies.
static void copy_into(struct rmpi_dpdk_memory *memory, struct rmpi_dpdk_frame *frames, uint32_t count)
{
    for (uint32_t i = 0; i < count && !is_back(memory); i++) {
        struct rte_mbuf *head = frames[i].buffer;
        if (!head->next || !RTE_MBUF_HAS_EXTBUF(head->next) || head->next->shinfo != &memory->shared)
            continue;
        // A frame has room for everything; if not, the frame is lost as on the network.
        if (rte_pktmbuf_linearize(head)) {
            rte_pktmbuf_free(head->next);
            head->next = NULL;
            head->nb_segs = 1;
        }
        frames[i].bytes = head->data_len;
    }
}

// Sends frames of an unused type to the port itself, so that the driver completes those before them.
static void push_through(struct rmpi_dpdk_port *port)
{
    struct rte_mbuf *fillers[FILLERS];
    struct rte_ether_addr mac = {0};
    rte_eth_macaddr_get(port->id, &mac);
    if (rte_pktmbuf_alloc_bulk(port->pool, fillers, FILLERS))
        return;
    for (int i = 0; i < FILLERS; i++) {
        struct rte_ether_hdr *frame = (struct rte_ether_hdr *)rte_pktmbuf_append(fillers[i], FILLER_BYTES);
        memset(frame, 0, FILLER_BYTES);
        frame->dst_addr = frame->src_addr = mac;
        // For local experiments: IEEE 802, clause 9.2.4.
        frame->ether_type = rte_cpu_to_be_16(0x88b5);
    }
    uint16_t sent = rte_eth_tx_burst(port->id, 0, fillers, FILLERS);
    rte_pktmbuf_free_bulk(fillers + sent, (unsigned)(FILLERS - sent));
}

// Makes the device free sent frames. Drivers free them while sending, and many at a time.
static void reclaim_sent(struct rmpi_dpdk_port *port, struct rmpi_dpdk_memory *memory)
{
    uint64_t begun = rte_get_timer_cycles(), most = rte_get_timer_hz() / 1000 * RECLAIM_MS;
    while (!is_back(memory) && port->is_started && rte_get_timer_cycles() - begun < most) {
        lock(port);
        rte_eth_tx_done_cleanup(port->id, 0, 0);
        int is_done = is_back(memory);
        if (!is_done)
            push_through(port);
        unlock(port);
        if (!is_done)
            rte_delay_us_sleep(20);
    }
}

// Stops the device and sets up its send queue again, which frees all buffers of the old one; then restarts it. 0, or
// -1: it does not work any more.
static int restart(struct rmpi_dpdk_port *port, struct rmpi_dpdk_memory *memory)
{
    lock(port);
    rte_eth_dev_stop(port->id);
    rmpi_pair_drain(port->device);
    port->is_started = 0;
    int error = rmpi_port_set_up_sends(port);
    unlock(port);
    return error || !is_back(memory) || rmpi_port_begin(port) ? -1 : 0;
}

int rmpi_dpdk_forget(struct rmpi_dpdk_port *port, struct rmpi_dpdk_memory *memory, struct rmpi_dpdk_frame *unsent, uint32_t count)
{
    if (!is_back(memory))
        copy_into(memory, unsent, count);
    if (!is_back(memory))
        reclaim_sent(port, memory);
    // A device that keeps the memory could still read it; one that does not restart would leave the program waiting
    // without a message.
    if (!is_back(memory) && restart(port, memory))
        return -1;
    unmap(port, memory);
    free(memory);
    return 0;
}
