// SPDX-License-Identifier: MIT OR Apache-2.0
// pingpong DEVICE_A DEVICE_B GID_INDEX BYTES SECONDS [HOST]: the latency of a message between two devices by plain
// verbs.
//
// Both devices are on this machine, or the second is on HOST, where this program is started by ssh, at the same path,
// as `pingpong --echo DEVICE_B GID_INDEX BYTES`. There are two processes, each on one of the devices with a reliable
// queue pair and a shared receive queue, as in provider `verbs`: BYTES bytes are sent inline, one send in sixteen is
// signalled, and the receiver polls. Batches take half a millisecond, as in the benchmark programs. Prints minimum,
// median and 99th percentile of the batches, in microseconds for one direction.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECEIVES = 64, SENDS = 64, SIGNAL_EVERY = 16, MOST_BYTES = 256, MAX_BATCHES = 20000 };
#define BATCH_SECONDS 0.5e-3

struct end {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *sends, *receives;
    struct ibv_srq *shared;
    struct ibv_qp *pair;
    struct ibv_mr *region;
    unsigned char *memory;
    int bytes;
    unsigned posted;
};

// The address of one end, sent to the other.
struct address {
    union ibv_gid gid;
    uint32_t number;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct ibv_context *open_device(const char *name)
{
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (devices == NULL)
        die("ibv_get_device_list");
    for (int i = 0; i < count; i++)
        if (strcmp(ibv_get_device_name(devices[i]), name) == 0)
            return ibv_open_device(devices[i]);
    fprintf(stderr, "there is no device %s\n", name);
    exit(1);
}

static void post_receive(struct end *end, uint64_t index)
{
    struct ibv_sge piece = {(uintptr_t)(end->memory + index * MOST_BYTES), MOST_BYTES, end->region->lkey};
    struct ibv_recv_wr request = {.wr_id = index, .sg_list = &piece, .num_sge = 1}, *bad;
    if (ibv_post_srq_recv(end->shared, &request, &bad) != 0)
        die("ibv_post_srq_recv");
}

static void make(struct end *end, const char *device, int bytes)
{
    end->bytes = bytes;
    end->context = open_device(device);
    if (end->context == NULL || (end->domain = ibv_alloc_pd(end->context)) == NULL)
        die(device);
    end->sends = ibv_create_cq(end->context, SENDS + 1, NULL, NULL, 0);
    end->receives = ibv_create_cq(end->context, RECEIVES + 1, NULL, NULL, 0);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
    end->shared = ibv_create_srq(end->domain, &shared);
    if (end->sends == NULL || end->receives == NULL || end->shared == NULL)
        die("queues");
    struct ibv_qp_init_attr pair = {
        .send_cq = end->sends,
        .recv_cq = end->receives,
        .srq = end->shared,
        .cap = {.max_send_wr = SENDS, .max_send_sge = 1, .max_inline_data = (uint32_t)bytes},
        .qp_type = IBV_QPT_RC,
    };
    end->pair = ibv_create_qp(end->domain, &pair);
    end->memory = aligned_alloc(4096, RECEIVES * MOST_BYTES);
    end->region = ibv_reg_mr(end->domain, end->memory, RECEIVES * MOST_BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (end->pair == NULL || end->region == NULL)
        die("queue pair");
    for (int i = 0; i < RECEIVES; i++)
        post_receive(end, (uint64_t)i);
}

static void modify(struct end *end, struct ibv_qp_attr attributes, int mask)
{
    if (ibv_modify_qp(end->pair, &attributes, mask | IBV_QP_STATE) != 0)
        die("ibv_modify_qp");
}

// in, out: descriptors to the other process.
static void join(struct end *end, int gid_index, int in, int out)
{
    struct ibv_port_attr port;
    struct address mine = {.number = end->pair->qp_num}, theirs;
    if (ibv_query_port(end->context, 1, &port) != 0 || ibv_query_gid(end->context, 1, gid_index, &mine.gid) != 0)
        die("the device's port");
    if (write(out, &mine, sizeof mine) != sizeof mine || read(in, &theirs, sizeof theirs) != sizeof theirs)
        die("the other process");
    modify(end, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1},
           IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    struct ibv_qp_attr receiving = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = port.active_mtu,
        .dest_qp_num = theirs.number,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = theirs.gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}},
    };
    modify(end, receiving,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
               IBV_QP_MIN_RNR_TIMER);
    struct ibv_qp_attr sending = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 1};
    modify(end, sending,
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    char ready = 1;
    if (write(out, &ready, 1) != 1 || read(in, &ready, 1) != 1)
        die("the other process");
}

static void take(struct ibv_cq *queue, struct ibv_wc *done)
{
    int count;
    while ((count = ibv_poll_cq(queue, 1, done)) == 0)
        ;
    if (count < 0 || done->status != IBV_WC_SUCCESS) {
        fprintf(stderr, "a completion says: %s\n", ibv_wc_status_str(done->status));
        exit(1);
    }
}

static void send_one(struct end *end, unsigned char turn)
{
    unsigned char body[MOST_BYTES] = {0};
    struct ibv_wc done;
    body[0] = turn;
    unsigned flags = IBV_SEND_INLINE | (++end->posted % SIGNAL_EVERY == 0 ? IBV_SEND_SIGNALED : 0);
    struct ibv_sge piece = {(uintptr_t)body, (uint32_t)end->bytes, 0};
    struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;
    if (ibv_post_send(end->pair, &request, &bad) != 0)
        die("ibv_post_send");
    // One completion is left pending, so that the sender does not wait for an acknowledgement.
    if (end->posted % SIGNAL_EVERY == 0 && end->posted > SIGNAL_EVERY)
        take(end->sends, &done);
}

static unsigned char receive_one(struct end *end)
{
    struct ibv_wc done;
    take(end->receives, &done);
    unsigned char turn = end->memory[done.wr_id * MOST_BYTES];
    post_receive(end, done.wr_id);
    return turn;
}

// The other end: sends back each message until one with a 1 arrives.
static void echo(struct end *end)
{
    for (;;) {
        unsigned char turn = receive_one(end);
        send_one(end, turn);
        if (turn == 1)
            break;
    }
    sleep(1); // the last acknowledgement may have to be sent once more
}

static double batch(struct end *end, long count)
{
    double start = now();
    for (long i = 0; i < count; i++) {
        send_one(end, 0);
        receive_one(end);
    }
    return now() - start;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct end *end, double seconds)
{
    static double times[MAX_BATCHES];
    long count = 1, warmed = 0;
    while (batch(end, count) < BATCH_SECONDS || (warmed += count) < 500)
        if (batch(end, count) < BATCH_SECONDS)
            count *= 2;
    int batches = 0;
    for (double start = now(); now() - start < seconds && batches < MAX_BATCHES; batches++)
        times[batches] = batch(end, count) / (double)count / 2 * 1e6;
    send_one(end, 1);
    receive_one(end);
    qsort(times, (size_t)batches, sizeof *times, by_value);
    printf("%.2f %.2f %.2f\n", times[0], times[batches / 2], times[batches * 99 / 100]);
}

// The other process, which never returns: uses a device of this machine, or is started on `host`.
static void be_the_other(char **argv, const char *host, int line)
{
    if (host != NULL) {
        dup2(line, 0);
        dup2(line, 1);
        execlp("ssh", "ssh", host, argv[0], "--echo", argv[2], argv[3], argv[4], (char *)NULL);
        die("ssh");
    }
    struct end end = {0};
    make(&end, argv[2], atoi(argv[4]));
    join(&end, atoi(argv[3]), line, line);
    echo(&end);
    exit(0);
}

static int usage(void)
{
    fprintf(stderr, "usage: pingpong DEVICE_A DEVICE_B GID_INDEX BYTES SECONDS [HOST] (1 to %d bytes)\n", MOST_BYTES);
    return 2;
}

int main(int argc, char **argv)
{
    int line[2], is_far = argc == 5 && strcmp(argv[1], "--echo") == 0;
    int bytes = is_far || argc == 6 || argc == 7 ? atoi(argv[4]) : 0;
    if (bytes < 1 || bytes > MOST_BYTES)
        return usage();
    struct end end = {0};
    if (is_far) {
        make(&end, argv[2], bytes);
        join(&end, atoi(argv[3]), 0, 1);
        echo(&end);
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0)
        die("socketpair");
    if (fork() == 0) {
        close(line[0]);
        be_the_other(argv, argc == 7 ? argv[6] : NULL, line[1]);
    }
    close(line[1]);
    make(&end, argv[1], bytes);
    join(&end, atoi(argv[3]), line[0], line[0]);
    measure(&end, atof(argv[5]));
    fflush(stdout);
    int status;
    wait(&status);
    return status != 0;
}
