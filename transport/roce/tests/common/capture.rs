// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads `data/roce.pcap`: the traffic of two `rdma_rxe` devices of Linux, with Ethernet headers.
//!
//! | offset | bytes | of the file, little endian |
//! |-------:|------:|-------------------------------------------------------|
//! |      0 |    24 | file header |
//! |     24 |    16 | packet header; the length is at offset 8 in it |
//! |     40 |     … | the packet; further packet headers and packets follow |

/// All packets of the capture, each from its IP header on.
pub(crate) fn datagrams() -> Vec<&'static [u8]> {
    const FILE: &[u8] = include_bytes!("../data/roce.pcap");
    let mut rest = &FILE[24..];
    let mut all = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let bytes = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let (frame, behind) = behind.split_at(bytes as usize);
        all.push(&frame[ETHERNET_BYTES..]);
        rest = behind;
    }
    all
}

const ETHERNET_BYTES: usize = 14;
