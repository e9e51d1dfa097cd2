/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The plug-in through which rmpi uses DPDK: no type of DPDK crosses it, so that the same library runs with any release of it.
 * `transport/dpdk-sys/src/table.rs` says the same in Rust; RMPI_DPDK_ABI changes with either.
 *
 * Threads: rmpi_dpdk_start once in a process; calls for one port never at the same time. */
#ifndef RMPI_DPDK_H
#define RMPI_DPDK_H

#include <stddef.h>
#include <stdint.h>

#define RMPI_DPDK_ABI 2

#pragma GCC visibility push(default)

/* A frame of Ethernet, without its checksum. Whoever has it owns the buffer. */
struct rmpi_dpdk_frame {
    void *buffer;
    uint8_t *data;
    uint32_t bytes;
    uint32_t room; /* bytes from `data` on that may be written */
};

/* Memory of the program that a device may read. */
struct rmpi_dpdk_memory;

/* What is known of a port that is open. */
struct rmpi_dpdk_facts {
    uint8_t mac[6];
    uint16_t mtu; /* bytes behind the header of Ethernet */
    uint32_t receives; /* frames that may wait to be taken */
    uint32_t in_place; /* whether memory can be lent to it */
};

struct rmpi_dpdk_port;

/* Which of these functions there are. */
uint32_t rmpi_dpdk_abi(void);

/* Starts DPDK in this process, with words as a program of DPDK would have them behind its name. 0, or -1 with the reason in `why`;
 * it cannot be tried twice. The thread's affinity may be another afterwards. */
int rmpi_dpdk_start(int count, const char *const *words, char *why, size_t why_bytes);

/* Opens the device of this name, with DPDK's arguments for it behind a comma, for frames of up to `frame_bytes`, of which `mtu` are behind
 * the header of Ethernet; 0: as the driver has it. Memory is lent to it if `in_place` is 1 and the device can that, or if it is -1 and
 * that is faster. */
int rmpi_dpdk_open(const char *device, uint32_t frame_bytes, uint16_t mtu, int in_place, struct rmpi_dpdk_port **port, struct rmpi_dpdk_facts *facts, char *why,
                   size_t why_bytes);

/* Closes it, after all of its buffers were given back, and all memory was taken back. It may be opened again; a memif in the same way alone. */
void rmpi_dpdk_close(struct rmpi_dpdk_port *port);

/* Up to `count` buffers to be filled; answers how many there are. */
uint32_t rmpi_dpdk_take(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count);

/* Gives buffers back. */
void rmpi_dpdk_give_back(struct rmpi_dpdk_frame *frames, uint32_t count);

/* Sends the first frames, as many as the device takes now; answers how many, which it owns then. */
uint32_t rmpi_dpdk_send(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count);

/* Takes up to `count` frames that have come; answers how many. */
uint32_t rmpi_dpdk_receive(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frames, uint32_t count);

/* Lets the device read memory, which stays where it is until rmpi_dpdk_forget has returned 0. NULL: that cannot be. */
struct rmpi_dpdk_memory *rmpi_dpdk_lend(struct rmpi_dpdk_port *port, void *base, size_t bytes);

/* Puts `bytes` of that behind the first frame->bytes of a frame that was taken, without copying them, then `pad` zeros, at most 3, and a
 * CRC-32 as Ethernet has it, in the order of a little endian: that of all of them, where `crc` is that of what stands before. -1: it cannot be
 * done, and the frame is as it was. Afterwards the frame is not changed any more. */
int rmpi_dpdk_attach(struct rmpi_dpdk_port *port, struct rmpi_dpdk_frame *frame, struct rmpi_dpdk_memory *memory, const uint8_t *from,
                     uint32_t bytes, uint32_t pad, uint32_t crc);

/* Takes memory back, whoever has it: no device reads it when this has returned 0. Frames that lead to it and were not sent are among
 * `unsent`; they carry copies afterwards. It takes a moment where the device has some, and when it does not give them back the
 * device is started anew. -1: they have gone where they cannot be had back, and may be read at any
 * time, or the device does not start again. */
int rmpi_dpdk_forget(struct rmpi_dpdk_port *port, struct rmpi_dpdk_memory *memory, struct rmpi_dpdk_frame *unsent, uint32_t count);

#pragma GCC visibility pop

#endif
