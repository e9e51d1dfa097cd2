// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions of rmpi_dpdk.h over the system's DPDK, 22.11 or later. `cargo xtask install` builds it where `pkg-config libdpdk` finds
// that, linked statically against the drivers that it names.
#include "rmpi_dpdk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

enum {
    MOST_WORDS = 48,
    BURST = 64,
    RECEIVES = 1024,
    SENDS = 512,
    // Frames in the hands of the library, beside those of the two queues.
    SPARE = 512,
    OPEN_TRIES = 4,
    // Calls that take nothing between two looks at a link that is down.
    DOWN_CALLS = 256,
    // Milliseconds between two tries to connect.
    CONNECT_PAUSE = 20,
};

struct rmpi_dpdk_port {
    uint16_t id;
    struct rte_mempool *pool;
    int is_up;
    uint32_t calls;
    // It connects to another process when it is started, and never again by itself: the client of a memif. When it was started last.
    int connects;
    uint64_t connected_at;
};

uint32_t rmpi_dpdk_abi(void)
{
    return RMPI_DPDK_ABI;
}

// What DPDK says, since the beginning of a call that may fail: none of it goes to the program's output.
static char said[2048];
static FILE *sink;

static void listen_anew(void)
{
    if (!sink) {
        sink = fmemopen(said, sizeof said, "w");
        if (sink)
            setvbuf(sink, NULL, _IONBF, 0);
    }
    if (sink) {
        rewind(sink);
        rte_openlog_stream(sink);
    }
    memset(said, 0, sizeof said);
}

// -1, with the reason: what failed, and what DPDK said of it first, or what the number of the error means.
static int failed(char *why, size_t why_bytes, const char *what, int error)
{
    int first = (int)strcspn(said, "\n");
    if (first)
        snprintf(why, why_bytes, "%s: %.*s", what, first, said);
    else
        snprintf(why, why_bytes, error ? "%s: %s" : "%s", what, rte_strerror(error < 0 ? -error : error));
    return -1;
}

int rmpi_dpdk_start(int count, const char *const *words, char *why, size_t why_bytes)
{
    static int was_tried;
    listen_anew();
    if (was_tried++ || count < 0 || count > MOST_WORDS)
        return failed(why, why_bytes, "it is in use in this process already", 0);
    // DPDK keeps the strings and changes the order of the array.
    char **arguments = calloc(MOST_WORDS + 2, sizeof *arguments);
    if (!arguments)
        return failed(why, why_bytes, "no memory", ENOMEM);
    arguments[0] = (char *)"rmpi";
    for (int i = 0; i < count; i++) {
        arguments[i + 1] = strdup(words[i]);
        if (!arguments[i + 1])
            return failed(why, why_bytes, "no memory", ENOMEM);
    }
    if (rte_eal_init(count + 1, arguments) < 0)
        return failed(why, why_bytes, rte_errno == EALREADY ? "the program uses DPDK itself" : "it refuses", rte_errno);
    return 0;
}

// The driver of packet sockets names its group of sockets after the process and the interface, in 16 bits, so that two processes can
// collide. Where that happened the next try counts on another number. The linker puts this in the place of getpid in the plug-in alone.
static unsigned salt;
pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return __real_getpid() ^ (pid_t)salt;
}

static int probe(const char *device)
{
    int error = 0;
    for (unsigned i = 0; i < OPEN_TRIES; i++) {
        salt = i * 0x2a51u * (unsigned)__real_getpid() & 0x7fff;
        listen_anew();
        error = rte_dev_probe(device);
        if (!error || error == -EEXIST || !strstr(device, "af_packet"))
            break;
    }
    salt = 0;
    return error;
}

// The number of the port of a device; a device that the start has found is there already.
static int find(const char *device, uint16_t *id)
{
    char name[RTE_ETH_NAME_MAX_LEN];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(device, ","), device);
    if (!rte_eth_dev_get_port_by_name(name, id))
        return 0;
    int error = probe(device);
    if (error)
        return error;
    return rte_eth_dev_get_port_by_name(name, id);
}

static int set_up(struct rmpi_dpdk_port *port, const struct rte_eth_dev_info *info)
{
    struct rte_eth_conf conf = {0};
    if (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE)
        conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    int error = rte_eth_dev_configure(port->id, 1, 1, &conf);
    uint16_t receives = RECEIVES, sends = SENDS;
    if (!error)
        error = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &receives, &sends);
    // -1, any, where nobody knows.
    unsigned node = (unsigned)rte_eth_dev_socket_id(port->id);
    if (!error)
        error = rte_eth_rx_queue_setup(port->id, 0, receives, node, NULL, port->pool);
    if (!error)
        error = rte_eth_tx_queue_setup(port->id, 0, sends, node, NULL);
    if (!error)
        error = rte_eth_dev_start(port->id);
    return port->connects ? 0 : error;
}

// The link is down.
static void look(struct rmpi_dpdk_port *port)
{
    struct rte_eth_link link = {0};
    if (port->calls++ % DOWN_CALLS || rte_eth_link_get_nowait(port->id, &link))
        return;
    port->is_up = link.link_status == RTE_ETH_LINK_UP;
    uint64_t now = rte_get_timer_cycles();
    if (!port->is_up && port->connects && now - port->connected_at > rte_get_timer_hz() / 1000 * CONNECT_PAUSE) {
        rte_eth_dev_stop(port->id);
        rte_eth_dev_start(port->id);
        port->connected_at = now;
    }
}

static void learn(const struct rmpi_dpdk_port *port, const struct rte_eth_dev_info *info, struct rmpi_dpdk_facts *facts)
{
    struct rte_ether_addr mac;
    struct rte_eth_link link;
    memset(facts, 0, sizeof *facts);
    if (!rte_eth_macaddr_get(port->id, &mac))
        memcpy(facts->mac, mac.addr_bytes, sizeof facts->mac);
    rte_eth_dev_get_mtu(port->id, &facts->mtu);
    if (!rte_eth_link_get_nowait(port->id, &link) && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
        facts->rate_mbps = link.link_speed;
    facts->receives = RECEIVES;
    snprintf(facts->driver, sizeof facts->driver, "%s", info->driver_name ? info->driver_name : "");
}

int rmpi_dpdk_open(const char *device, uint32_t frame_bytes, struct rmpi_dpdk_port **opened, struct rmpi_dpdk_facts *facts, char *why,
                   size_t why_bytes)
{
    struct rmpi_dpdk_port *port = calloc(1, sizeof *port);
    if (!port)
        return failed(why, why_bytes, "no memory", ENOMEM);
    struct rte_eth_dev_info info;
    port->connects = strstr(device, "net_memif") && strstr(device, "role=client");
    int error = find(device, &port->id);
    const char *what = "it is not found, or its driver refuses it";
    if (!error) {
        what = "rte_eth_dev_info_get";
        error = rte_eth_dev_info_get(port->id, &info);
    }
    if (!error) {
        char name[RTE_MEMPOOL_NAMESIZE];
        snprintf(name, sizeof name, "rmpi-%u", port->id);
        uint32_t room = RTE_MAX((uint32_t)RTE_MBUF_DEFAULT_DATAROOM, RTE_ALIGN_CEIL(frame_bytes, 64u)) + RTE_PKTMBUF_HEADROOM;
        what = "no memory for its frames";
        // Calls for one port never meet, so its buffers need no lock.
        port->pool = rte_pktmbuf_pool_create_by_ops(name, RECEIVES + SENDS + SPARE - 1, 0, 0, (uint16_t)RTE_MIN(room, (uint32_t)UINT16_MAX),
                                                    SOCKET_ID_ANY, "ring_sp_sc");
        error = port->pool ? 0 : rte_errno;
    }
    if (!error) {
        what = "it does not start";
        error = set_up(port, &info);
    }
    if (error) {
        free(port);
        return failed(why, why_bytes, what, error);
    }
    learn(port, &info, facts);
    *opened = port;
    return 0;
}

void rmpi_dpdk_close(struct rmpi_dpdk_port *port)
{
    rte_eth_dev_stop(port->id);
    rte_eth_dev_close(port->id);
    free(port);
}

static void show(struct rmpi_dpdk_frame *frame, struct rte_mbuf *buffer)
{
    frame->buffer = buffer;
    frame->data = rte_pktmbuf_mtod(buffer, uint8_t *);
    frame->bytes = rte_pktmbuf_data_len(buffer);
    frame->room = frame->bytes + rte_pktmbuf_tailroom(buffer);
}

uint32_t rmpi_dpdk_take(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count)
{
    struct rte_mbuf *buffers[BURST];
    count = RTE_MIN(count, (uint32_t)BURST);
    if (rte_pktmbuf_alloc_bulk(port->pool, buffers, count))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        show(&frames[i], buffers[i]);
    return count;
}

void rmpi_dpdk_give_back(struct rmpi_dpdk_frame *frames, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        rte_pktmbuf_free(frames[i].buffer);
}

uint32_t rmpi_dpdk_send(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count)
{
    struct rte_mbuf *buffers[BURST];
    count = RTE_MIN(count, (uint32_t)BURST);
    for (uint32_t i = 0; i < count; i++) {
        buffers[i] = frames[i].buffer;
        rte_pktmbuf_data_len(buffers[i]) = (uint16_t)frames[i].bytes;
        rte_pktmbuf_pkt_len(buffers[i]) = frames[i].bytes;
    }
    return rte_eth_tx_burst(port->id, 0, buffers, (uint16_t)count);
}

uint32_t rmpi_dpdk_receive(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count)
{
    struct rte_mbuf *buffers[BURST];
    count = RTE_MIN(count, (uint32_t)BURST);
    uint16_t came = rte_eth_rx_burst(port->id, 0, buffers, (uint16_t)count);
    if (!port->is_up && came == 0)
        look(port);
    uint32_t taken = 0;
    for (uint16_t i = 0; i < came; i++) {
        // One that does not fit into a buffer is no packet of ours.
        if (buffers[i]->nb_segs > 1)
            rte_pktmbuf_free(buffers[i]);
        else
            show(&frames[taken++], buffers[i]);
    }
    return taken;
}

void rmpi_dpdk_count(struct rmpi_dpdk_port *port, struct rmpi_dpdk_counts *counts)
{
    struct rte_eth_stats stats;
    memset(counts, 0, sizeof *counts);
    if (!rte_eth_stats_get(port->id, &stats))
        counts->missed = stats.imissed + stats.rx_nombuf;
}
