/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The plug-in through which rmpi uses DPDK: its interface has no type of DPDK, so that the same library runs with any release of it.
 * `transport/dpdk-sys/src/table.rs` declares the same in Rust; RMPI_DPDK_ABI changes with either.
 *
 * Threads: rmpi_dpdk_start once in a process; calls for one port are never concurrent. */
#ifndef RMPI_DPDK_H
#define RMPI_DPDK_H

#include <stddef.h>
#include <stdint.h>

#define RMPI_DPDK_ABI 2

#pragma GCC visibility push(default)

/* An Ethernet frame, without its FCS. The holder of the frame owns the buffer. */
struct rmpi_dpdk_frame {
    void *buffer;
    uint8_t *data;
    uint32_t bytes;
    uint32_t room; /* bytes from `data` on that may be written */
};

/* Memory of the program that a device may read. */
struct rmpi_dpdk_memory;

/* The attributes of an open port. */
struct rmpi_dpdk_facts {
    uint8_t mac[6];
    uint16_t mtu; /* bytes after the Ethernet header */
    uint32_t receives; /* size of the receive queue, in frames */
    uint32_t in_place; /* whether memory can be lent to it */
};

struct rmpi_dpdk_port;

/* Version of this interface. */
uint32_t rmpi_dpdk_abi(void);

/* Starts DPDK in this process, with the command-line arguments `words` (without the program's name). Returns 0, or -1 with a message in `why`;
 * it cannot be tried twice. It may change the affinity of the calling thread. */
int rmpi_dpdk_start(int count, const char *const *words, char *why, size_t why_bytes);

/* Opens the device of this name, with DPDK's arguments for it after a comma, for frames of up to `frame_bytes`, with an MTU of `mtu`;
 * 0: the driver's default. Memory can be lent to it if `in_place` is 1 and the device supports that, or if it is -1 and that is
 * faster. */
int rmpi_dpdk_open(const char *device, uint32_t frame_bytes, uint16_t mtu, int in_place, struct rmpi_dpdk_port **port, struct rmpi_dpdk_facts *facts, char *why,
                   size_t why_bytes);

/* Closes it, after all of its buffers and all lent memory were returned. It may be opened again; a memif only with the same arguments. */
void rmpi_dpdk_close(struct rmpi_dpdk_port *port);

/* Gets up to `count` empty buffers; returns how many. */
uint32_t rmpi_dpdk_take(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count);

/* Frees buffers. */
void rmpi_dpdk_give_back(struct rmpi_dpdk_frame *frames, uint32_t count);

/* Sends the first frames, as many as the device takes now; returns how many, which the device owns then. */
uint32_t rmpi_dpdk_send(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count);

/* Receives up to `count` frames; returns how many. */
uint32_t rmpi_dpdk_receive(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count);

/* Lends memory to the device, which stays mapped until rmpi_dpdk_forget has returned 0. NULL: not supported. */
struct rmpi_dpdk_memory *rmpi_dpdk_lend(struct rmpi_dpdk_port *port, void *base, size_t bytes);

/* Appends `bytes` of lent memory to the first frame->bytes of an empty frame, without copying them, then `pad` zeros, at most 3, and a
 * little-endian CRC-32 of Ethernet over all of them, continued from `crc`, the checksum of the bytes before. -1: impossible, and the frame
 * is unchanged. Afterwards the frame must not be changed any more. */
int rmpi_dpdk_attach(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frame, struct rmpi_dpdk_memory *memory, const uint8_t *from,
                     uint32_t bytes, uint32_t pad, uint32_t crc);

/* Takes lent memory back: when this has returned 0, no device reads it any more. Unsent frames that refer to it are among `unsent`; they
 * contain copies afterwards. It blocks while the device has such frames; if it does not free them, the device is restarted. -1: the
 * frames cannot be reclaimed, and may be read at any time, or the device does not start again. */
int rmpi_dpdk_forget(struct rmpi_dpdk_port *port, struct rmpi_dpdk_memory *memory, struct rmpi_dpdk_frame *unsent, uint32_t count);

#pragma GCC visibility pop

#endif
