// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions of rmpi_dpdk.h over the system's DPDK, 22.11 or later. `cargo xtask install` builds it where
// `pkg-config libdpdk` finds DPDK, linked statically with the drivers that are listed there.
#define _GNU_SOURCE
#include "port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_interrupts.h>
#include <rte_log.h>

#ifdef RMPI_XDP
#include <bpf/libbpf.h>
#include <xdp/libxdp.h>
#endif

enum {
    MOST_WORDS = 48,
    OPEN_TRIES = 4,
    XDP_ROOM = 3584,
    XDP_KEPT = 4096,
    // Calls that receive nothing between two checks of a link that is down.
    DOWN_CALLS = 256,
    // The same for a link that was up.
    UP_CALLS = 16384,
    // Milliseconds between two attempts to connect, at first; doubled each time.
    CONNECT_PAUSE = 20,
    CONNECT_PAUSE_MAX = 1000,
};

uint32_t rmpi_dpdk_abi(void)
{
    return RMPI_DPDK_ABI;
}

// DPDK's log since the beginning of a call that may fail: none of it goes to the program's output.
static char dpdk_log[2048];
static FILE *sink;

static void reset_log(void)
{
    if (!sink) {
        sink = fmemopen(dpdk_log, sizeof dpdk_log, "w");
        if (sink)
            setvbuf(sink, NULL, _IONBF, 0);
    }
    if (sink) {
        rewind(sink);
        rte_openlog_stream(sink);
    }
    memset(dpdk_log, 0, sizeof dpdk_log);
}

// Returns -1, with a message: what failed, and the first line of DPDK's log, or the text of the error.
static int failed(char *why, size_t why_bytes, const char *what, int error)
{
    int first = (int)strcspn(dpdk_log, "\n");
    if (first)
        snprintf(why, why_bytes, "%s: %.*s", what, first, dpdk_log);
    else
        snprintf(why, why_bytes, error ? "%s: %s" : "%s", what, rte_strerror(error < 0 ? -error : error));
    return -1;
}

int rmpi_dpdk_start(int count, const char *const *words, char *why, size_t why_bytes)
{
    static int was_tried;
    reset_log();
    if (was_tried++ || count < 0 || count > MOST_WORDS)
        return failed(why, why_bytes, "it is in use in this process already", 0);
#ifdef RMPI_XDP
    libbpf_set_print(NULL);
    libxdp_set_print(NULL);
#endif
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

// The packet socket driver names its fanout group after the process id and the interface, in 16 bits, so that two
// processes can collide. After a collision the next attempt uses another number. The linker replaces getpid in the
// plug-in by this function.
static unsigned salt;
pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return __real_getpid() ^ (pid_t)salt;
}

// DPDK's own thread calls drivers on events, and the memif driver frees memory then that a burst may be using. So these
// calls, and the bursts of such a port, exclude each other. The linker replaces the functions with which drivers
// register for events by these.
struct watcher {
    rte_intr_callback_fn run;
    rte_intr_unregister_callback_fn ended;
    void *argument;
    int is_over;
    struct watcher *next;
};
static struct watcher *watchers;

int __real_rte_intr_callback_register(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
int __real_rte_intr_callback_unregister(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
int __real_rte_intr_callback_unregister_pending(const struct rte_intr_handle *, rte_intr_callback_fn, void *,
                                                rte_intr_unregister_callback_fn);
int __wrap_rte_intr_callback_register(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
int __wrap_rte_intr_callback_unregister(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
int __wrap_rte_intr_callback_unregister_sync(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
int __wrap_rte_intr_callback_unregister_pending(const struct rte_intr_handle *, rte_intr_callback_fn, void *,
                                                rte_intr_unregister_callback_fn);

static void run_watcher(void *argument)
{
    struct watcher *watcher = argument;
    rmpi_lock_drivers();
    // The driver may have unregistered while it waited for the lock.
    if (!watcher->is_over)
        watcher->run(watcher->argument);
    rmpi_unlock_drivers();
}

static void forget(struct watcher *watcher)
{
    struct watcher **place = &watchers;
    while (*place && *place != watcher)
        place = &(*place)->next;
    if (*place)
        *place = watcher->next;
    free(watcher);
}

static void end_watcher(struct rte_intr_handle *handle, void *argument)
{
    struct watcher *watcher = argument;
    rmpi_lock_drivers();
    if (watcher->ended)
        watcher->ended(handle, watcher->argument);
    forget(watcher);
    rmpi_unlock_drivers();
}

static struct watcher *watcher_of(rte_intr_callback_fn run, void *argument)
{
    struct watcher *watcher = watchers;
    while (watcher && (watcher->is_over || watcher->run != run || watcher->argument != argument))
        watcher = watcher->next;
    return watcher;
}

int __wrap_rte_intr_callback_register(const struct rte_intr_handle *handle, rte_intr_callback_fn run, void *argument)
{
    struct watcher *watcher = calloc(1, sizeof *watcher);
    if (!watcher)
        return -ENOMEM;
    rmpi_lock_drivers();
    *watcher = (struct watcher){.run = run, .argument = argument, .next = watchers};
    watchers = watcher;
    int result = __real_rte_intr_callback_register(handle, run_watcher, watcher);
    if (result < 0)
        forget(watcher);
    rmpi_unlock_drivers();
    return result;
}

int __wrap_rte_intr_callback_unregister(const struct rte_intr_handle *handle, rte_intr_callback_fn run, void *argument)
{
    rmpi_lock_drivers();
    struct watcher *watcher = watcher_of(run, argument);
    int result = watcher ? __real_rte_intr_callback_unregister(handle, run_watcher, watcher) : -ENOENT;
    if (result > 0)
        forget(watcher);
    rmpi_unlock_drivers();
    return result;
}

int __wrap_rte_intr_callback_unregister_sync(const struct rte_intr_handle *handle, rte_intr_callback_fn run, void *argument)
{
    int result;
    while ((result = __wrap_rte_intr_callback_unregister(handle, run, argument)) == -EAGAIN)
        sched_yield();
    return result;
}

int __wrap_rte_intr_callback_unregister_pending(const struct rte_intr_handle *handle, rte_intr_callback_fn run, void *argument,
                                                rte_intr_unregister_callback_fn ended)
{
    rmpi_lock_drivers();
    struct watcher *watcher = watcher_of(run, argument);
    int result = -ENOENT;
    if (watcher) {
        watcher->ended = ended;
        result = __real_rte_intr_callback_unregister_pending(handle, run_watcher, watcher, end_watcher);
        watcher->is_over = result > 0;
    }
    rmpi_unlock_drivers();
    return result;
}

static int probe(const char *device)
{
    int error = 0;
    for (unsigned i = 0; i < OPEN_TRIES; i++) {
        salt = i * 0x2a51u * (unsigned)__real_getpid() & 0x7fff;
        reset_log();
        error = rte_dev_probe(device);
        if (!error || error == -EEXIST || !strstr(device, "af_packet"))
            break;
    }
    salt = 0;
    return error;
}

// The port id of a device; PCI devices were probed at the start already.
static int find(const char *device, uint16_t *id)
{
    char name[RTE_ETH_NAME_MAX_LEN];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(device, ","), device);
    if (!rte_eth_dev_get_port_by_name(name, id))
        return 0;
    int error = rmpi_pair_make(device);
    if (error == -ENODEV)
        error = probe(device);
    if (error)
        return error;
    return rte_eth_dev_get_port_by_name(name, id);
}

int rmpi_port_set_up_sends(struct rmpi_dpdk_port *port)
{
    // -1 (any) if the socket is unknown.
    return rte_eth_tx_queue_setup(port->id, 0, port->sends, (unsigned)rte_eth_dev_socket_id(port->id), NULL);
}

static int set_up(struct rmpi_dpdk_port *port, const struct rte_eth_dev_info *info, uint16_t mtu)
{
    struct rte_eth_conf conf = {0};
    // Lent memory is not of the pool, and comes back mixed with others: drivers must check each buffer.
    uint64_t wanted = port->in_place ? RTE_ETH_TX_OFFLOAD_MULTI_SEGS : RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    conf.txmode.offloads = info->tx_offload_capa & wanted;
    int error = rte_eth_dev_configure(port->id, 1, 1, &conf);
    if (!error && mtu) {
        error = rte_eth_dev_set_mtu(port->id, mtu);
        // Drivers without a configurable MTU use that of the interface behind them.
        error = error == -ENOTSUP ? 0 : error;
    }
    port->sends = SENDS;
    port->receives = RECEIVES;
    if (!error)
        error = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &port->receives, &port->sends);
    unsigned node = (unsigned)rte_eth_dev_socket_id(port->id);
    if (!error)
        error = rte_eth_rx_queue_setup(port->id, 0, port->receives, node, NULL, port->pool);
    if (!error)
        error = rmpi_port_set_up_sends(port);
    port->is_ready = !error;
    return error;
}

int rmpi_port_begin(struct rmpi_dpdk_port *port)
{
    lock(port);
    int error = rte_eth_dev_start(port->id);
    port->is_started = !error;
    // IPv6 neighbour discovery uses multicast. Devices that cannot select it receive multicast anyway, or are
    // configured elsewhere.
    if (!error)
        rte_eth_allmulticast_enable(port->id);
    port->is_up = 0;
    port->calls = 0;
    port->pause_ms = CONNECT_PAUSE;
    port->connected_at = rte_get_timer_cycles();
    unlock(port);
    return port->connects ? 0 : error;
}

// Checks the link: it may be down, or may have changed.
static void check_link(struct rmpi_dpdk_port *port)
{
    struct rte_eth_link link = {0};
    if (rte_eth_link_get_nowait(port->id, &link))
        return;
    port->is_up = link.link_status == RTE_ETH_LINK_UP;
    uint64_t now = rte_get_timer_cycles();
    if (port->is_up)
        port->pause_ms = CONNECT_PAUSE;
    else if (port->connects && now - port->connected_at > rte_get_timer_hz() / 1000 * port->pause_ms) {
        rte_eth_dev_stop(port->id);
        port->is_started = !rte_eth_dev_start(port->id);
        port->connected_at = now;
        port->pause_ms = RTE_MIN(2 * port->pause_ms, (uint32_t)CONNECT_PAUSE_MAX);
    }
}

static void read_facts(const struct rmpi_dpdk_port *port, struct rmpi_dpdk_facts *facts)
{
    struct rte_ether_addr mac;
    memset(facts, 0, sizeof *facts);
    if (!rte_eth_macaddr_get(port->id, &mac))
        memcpy(facts->mac, mac.addr_bytes, sizeof facts->mac);
    rte_eth_dev_get_mtu(port->id, &facts->mtu);
    facts->receives = port->receives;
    facts->in_place = (uint32_t)port->in_place;
}

// The open ports, and all memifs ever opened. A memif is stopped when its port is closed, and kept: when it is removed,
// its driver does not unregister a descriptor from DPDK's own thread, which aborts the process when it finds that.
static struct rmpi_dpdk_port *ports[RTE_MAX_ETHPORTS];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static struct rmpi_dpdk_port *port_of(uint16_t id, const char *device)
{
    if (ports[id])
        return ports[id];
    struct rmpi_dpdk_port *port = calloc(1, sizeof *port);
    if (!port)
        return NULL;
    port->id = id;
    port->device = strdup(device);
    if (!port->device) {
        free(port);
        return NULL;
    }
    port->is_shared = !strncmp(device, "net_memif", 9);
    // The default role is client; the server was called master in older releases.
    port->connects = port->is_shared && !strstr(device, "role=server") && !strstr(device, "role=master");
    if (port->is_shared) {
        port->next_shared = atomic_load_explicit(&rmpi_shared_ports, memory_order_relaxed);
        atomic_store_explicit(&rmpi_shared_ports, port, memory_order_release);
    }
    return ports[id] = port;
}

// Calls for one port are never concurrent, but a driver's own thread may use buffers too. A stack returns the buffers
// freed last, which are still in the cache.
struct rte_mempool *rmpi_port_make_pool(const char *what, uint16_t id, uint32_t count, uint32_t room)
{
    char name[RTE_MEMPOOL_NAMESIZE];
    static unsigned made;
    snprintf(name, sizeof name, "rmpi-%s-%u-%u", what, id, made++);
    room = RTE_MIN(room + RTE_PKTMBUF_HEADROOM, (uint32_t)UINT16_MAX);
    return rte_pktmbuf_pool_create_by_ops(name, count, 0, 0, (uint16_t)room, SOCKET_ID_ANY, "stack");
}

// Creates the pools of a port. 0, or DPDK's error.
static int make_pools(struct rmpi_dpdk_port *port, uint32_t frame_bytes)
{
    // Left behind by a failed opening.
    rte_mempool_free(port->pool);
    rte_mempool_free(port->parts);
    port->parts = NULL;
    uint32_t room = RTE_MAX((uint32_t)RTE_MBUF_DEFAULT_DATAROOM, RTE_ALIGN_CEIL(frame_bytes, 64u));
    uint32_t count = RECEIVES + SENDS + SPARE - 1;
    if (!strncmp(port->device, "net_af_xdp", 10)) {
        // An AF_XDP socket uses the pool as its memory, in which no buffer is longer than a page, and reserves many of
        // them for receiving.
        room = RTE_MIN(room, (uint32_t)XDP_ROOM);
        count += XDP_KEPT;
    }
    port->pool = rmpi_port_make_pool("frames", port->id, count, room);
    if (!port->pool)
        return rte_errno;
    if (port->in_place)
        port->parts = rmpi_port_make_pool("parts", port->id, 2 * (SENDS + SPARE), RTE_CACHE_LINE_SIZE);
    return port->in_place && !port->parts ? rte_errno : 0;
}

// A pool of which the other end of a pair still has buffers is kept.
static void free_pool(struct rte_mempool *pool)
{
    if (!pool || rte_mempool_full(pool))
        rte_mempool_free(pool);
}

// Releases a port, so that the same device can be opened again.
static void release_port(struct rmpi_dpdk_port *port)
{
    lock(port);
    rte_eth_dev_stop(port->id);
    rmpi_pair_drain(port->device);
    port->is_started = 0;
    unlock(port);
    port->is_open = 0;
    if (port->is_shared)
        return;
    struct rte_eth_dev_info info = {0};
    rte_eth_dev_info_get(port->id, &info);
    rte_eth_dev_close(port->id);
    if (info.device)
        rte_dev_remove((struct rte_device *)info.device);
    ports[port->id] = NULL;
    free_pool(port->pool);
    free_pool(port->parts);
    free(port->device);
    free(port);
}

// Returns what failed, or NULL.
static const char *open_port(struct rmpi_dpdk_port *port, uint32_t frame_bytes, uint16_t mtu, int in_place, int *error)
{
    struct rte_eth_dev_info info;
    *error = rte_eth_dev_info_get(port->id, &info);
    if (*error)
        return "nothing is known of it";
    if (!port->is_ready) {
        int is_wanted = in_place < 0 ? rmpi_port_should_send_in_place(port) : in_place;
        port->in_place = is_wanted && rmpi_port_can_send_in_place(port, &info);
        *error = make_pools(port, frame_bytes);
        if (*error)
            return "no memory for its frames";
        port->frame_bytes = frame_bytes;
        port->mtu = mtu;
        port->wanted_in_place = in_place;
        *error = set_up(port, &info, mtu);
    }
    if (!*error)
        *error = rmpi_port_begin(port);
    return *error ? "it does not start" : NULL;
}

static int open_locked(const char *device, uint32_t frame_bytes, uint16_t mtu, int in_place, struct rmpi_dpdk_port **opened, char *why, size_t why_bytes)
{
    reset_log();
    uint16_t id;
    int error = find(device, &id);
    if (error || id >= RTE_MAX_ETHPORTS)
        return failed(why, why_bytes, "it is not found, or its driver refuses it", error);
    struct rmpi_dpdk_port *port = port_of(id, device);
    if (!port)
        return failed(why, why_bytes, "no memory", ENOMEM);
    if (port->is_open)
        return failed(why, why_bytes, "this process has opened it already", 0);
    int is_same = port->frame_bytes == frame_bytes && port->mtu == mtu && port->wanted_in_place == in_place;
    if (strcmp(port->device, device) || (port->is_ready && !is_same))
        return failed(why, why_bytes, "this process has opened it before, in another way", 0);
    const char *what = open_port(port, frame_bytes, mtu, in_place, &error);
    if (what) {
        failed(why, why_bytes, what, error);
        release_port(port);
        return -1;
    }
    port->is_open = 1;
    *opened = port;
    return 0;
}

int rmpi_dpdk_open(const char *device, uint32_t frame_bytes, uint16_t mtu, int in_place, struct rmpi_dpdk_port **opened, struct rmpi_dpdk_facts *facts, char *why,
                   size_t why_bytes)
{
    pthread_mutex_lock(&opening);
    int result = open_locked(device, frame_bytes, mtu, in_place, opened, why, why_bytes);
    if (!result)
        read_facts(*opened, facts);
    pthread_mutex_unlock(&opening);
    return result;
}

void rmpi_dpdk_close(struct rmpi_dpdk_port *port)
{
    pthread_mutex_lock(&opening);
    release_port(port);
    pthread_mutex_unlock(&opening);
}

static void describe(struct rmpi_dpdk_frame *frame, struct rte_mbuf *buffer)
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
        describe(&frames[i], buffers[i]);
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
        // Chained frames have their lengths already.
        if (buffers[i]->nb_segs == 1) {
            rte_pktmbuf_data_len(buffers[i]) = (uint16_t)frames[i].bytes;
            rte_pktmbuf_pkt_len(buffers[i]) = frames[i].bytes;
        }
    }
    begin_burst(port);
    uint32_t sent = port->is_started ? rte_eth_tx_burst(port->id, 0, buffers, (uint16_t)count) : 0;
    end_burst(port);
    return sent;
}

uint32_t rmpi_dpdk_receive(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count)
{
    struct rte_mbuf *buffers[BURST];
    count = RTE_MIN(count, (uint32_t)BURST);
    begin_burst(port);
    uint16_t came = port->is_started ? rte_eth_rx_burst(port->id, 0, buffers, (uint16_t)count) : 0;
    end_burst(port);
    // Now and then while nothing arrives.
    if (came == 0 && port->calls++ % (port->is_up ? UP_CALLS : DOWN_CALLS) == 0) {
        lock(port);
        check_link(port);
        unlock(port);
    }
    uint32_t taken = 0;
    for (uint16_t i = 0; i < came; i++) {
        // A frame that does not fit into a buffer is none of ours.
        if (buffers[i]->nb_segs > 1 && rte_pktmbuf_linearize(buffers[i]))
            rte_pktmbuf_free(buffers[i]);
        else
            describe(&frames[taken++], buffers[i]);
    }
    return taken;
}
