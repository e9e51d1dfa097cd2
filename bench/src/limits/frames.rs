// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of DPDK between two processes, without MPI: bursts of Ethernet frames, without recovery from loss.
//!
//! A link is a pair of devices. [`Link::Memif`] needs no hardware: the two processes share memory. [`Link::Configured`]
//! is the pair that `RMPI_DPDK` names for the two ranks of a job.

use std::ops::Range;

use dpdk_sys::{DpdkPort, FrameMemory, InPlace};

use super::team::{BUFFERS, Halt, Member};
use crate::Error;

/// Which devices the two ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Memif,
    Configured,
}

/// The variable that names the ports of ranks.
const VARIABLE: &str = "RMPI_DPDK";

/// The ports of two ranks that share memory (memif), in the syntax of [`VARIABLE`].
pub(crate) fn memif_ports() -> String {
    let process = std::process::id();
    let port = |number: u32, role: &str| {
        format!(
            "10.99.0.{number}/24 net_memif77,role={role},socket=rmpi-{process},socket-abstract=yes"
        )
    };
    format!("{}; {}", port(1, "server"), port(2, "client"))
}

/// The two ports that [`VARIABLE`] names, in its syntax.
///
/// # Errors
/// When it does not name exactly two ports with virtual devices.
pub(crate) fn configured() -> Result<String, Error> {
    let ports = std::env::var(VARIABLE).unwrap_or_default();
    match devices_of(&ports) {
        Some(_) => Ok(ports),
        None => Err(Error::Limit(format!(
            "{VARIABLE} is \"{ports}\", expected two ports with virtual devices and nothing behind them, as \
             \"10.9.0.1 net_af_packet0,iface=v0; 10.9.0.2 net_af_packet0,iface=v1\""
        ))),
    }
}

impl Link {
    /// The device of each end.
    pub(super) fn devices(self) -> Result<[String; 2], Error> {
        let ports = match self {
            Self::Memif => memif_ports(),
            Self::Configured => configured()?,
        };
        Ok(devices_of(&ports).unwrap_or_default())
    }
}

/// The devices of a list of two ports; `None` if the list is of another form.
fn devices_of(ports: &str) -> Option<[String; 2]> {
    // Accepts only an address and a virtual device. Rejects the options `mtu` and `huge` (docs/dpdk.md), because all
    // frames of this measurement have one length and lie in ordinary pages.
    let device = |port: &str| {
        let words: Vec<&str> = port.split_whitespace().collect();
        match words.as_slice() {
            [_, device] if device.starts_with("net_") => Some((*device).to_owned()),
            _ => None,
        }
    };
    let (one, other) = ports.split_once(';')?;
    let two = [device(one)?, device(other)?];
    (!other.contains(';')).then_some(two)
}

/// This end of the link.
#[derive(Debug)]
pub(super) struct LinkEnd {
    port: DpdkPort,
    /// The payload that is sent, or the place where arriving payload is stored.
    buffer: Vec<u8>,
}

impl LinkEnd {
    pub(super) fn open(device: &str) -> Result<Self, String> {
        dpdk_sys::start(FrameMemory::Ordinary, device)?;
        Ok(Self {
            port: DpdkPort::open(device, FRAME_BYTES, None, InPlace::Never)?,
            buffer: Vec::new(),
        })
    }

    /// Sends a message of one frame there and back, `trips` times.
    pub(super) fn trips(&mut self, member: &Member, bytes: usize, trips: u64) -> Result<(), Halt> {
        for _ in 0..trips {
            if member.index == 0 {
                self.send(member, bytes, 1)?;
            }
            self.wait_for(member, 1)?;
            if member.index == 1 {
                self.send(member, bytes, 1)?;
            }
        }
        Ok(())
    }

    /// Sends messages of one frame each, in windows of [`MESSAGES`]; the receiver answers each window with one frame.
    pub(super) fn rate(&mut self, member: &Member, bytes: usize, count: u64) -> Result<(), Halt> {
        for _ in 0..(count / MESSAGES).max(1) {
            let (frames_out, frames_in) = match member.index {
                0 => (MESSAGES, 1),
                _ => (1, MESSAGES),
            };
            if member.index == 1 {
                self.wait_for(member, frames_in)?;
            }
            self.send(member, bytes, frames_out)?;
            if member.index == 0 {
                self.wait_for(member, frames_in)?;
            }
        }
        Ok(())
    }

    /// Sends `count` messages of `bytes` bytes one way, in packets of [`PACKET_BYTES`]. Each packet has a checksum,
    /// which the receiver verifies before it copies the payload to its place.
    pub(super) fn stream(&mut self, member: &Member, bytes: usize, count: u64) -> Result<(), Halt> {
        self.buffer.resize(bytes * BUFFERS, FILL);
        let packets = count * bytes.div_ceil(PACKET_BYTES) as u64;
        match member.index {
            0 => self.send_stream(member, bytes, packets),
            _ => {
                self.buffer[bytes - 1] = 0;
                self.deliver(member, bytes, packets)?;
                let arrived = self.buffer[bytes - 1] == FILL;
                arrived.then_some(()).ok_or(Halt::WRONG_BYTES)
            }
        }
    }

    fn send_stream(&mut self, member: &Member, bytes: usize, packets: u64) -> Result<(), Halt> {
        let (mut sent, mut acknowledged) = (0, 0);
        let Self { port, buffer } = self;
        member.spin(|| {
            while sent < packets && sent - acknowledged < IN_FLIGHT {
                let part = &buffer[place_of(sent, bytes)];
                if !push_frame(port, part.len() + NUMBER_AND_CHECKSUM_BYTES, |body| {
                    encode(body, sent, part)
                }) {
                    break;
                }
                sent += 1;
            }
            port.flush();
            for_each_frame(port, |body| {
                acknowledged = acknowledged.max(number_in(body))
            });
            acknowledged == packets
        })
    }

    fn deliver(&mut self, member: &Member, bytes: usize, packets: u64) -> Result<(), Halt> {
        let (mut received, mut acknowledged) = (0, 0);
        let mut are_valid = true;
        let Self { port, buffer } = self;
        member.spin(|| {
            for_each_frame(port, |body| {
                let place = place_of(received, bytes);
                are_valid &= decode(body, received, &mut buffer[place]);
                received += 1;
            });
            let is_due = received >= acknowledged + ACKNOWLEDGED
                || received == packets && acknowledged != packets;
            if is_due
                && push_frame(port, NUMBER_AND_CHECKSUM_BYTES, |body| {
                    body[..8].copy_from_slice(&received.to_ne_bytes())
                })
            {
                acknowledged = received;
            }
            port.flush();
            acknowledged == packets && !port.has_unsent() || !are_valid
        })?;
        are_valid.then_some(()).ok_or(Halt::WRONG_BYTES)
    }

    /// Sends `frames` frames with `bytes` bytes of payload.
    fn send(&mut self, member: &Member, bytes: usize, mut frames: u64) -> Result<(), Halt> {
        member.spin(|| {
            while frames != 0 && push_frame(&mut self.port, bytes, |_| ()) {
                frames -= 1;
            }
            self.port.flush();
            frames == 0 && !self.port.has_unsent()
        })
    }

    fn wait_for(&mut self, member: &Member, mut frames: u64) -> Result<(), Halt> {
        member.spin(|| {
            for_each_frame(&mut self.port, |_| frames = frames.saturating_sub(1));
            frames == 0
        })
    }
}

/// Queues a frame whose `bytes` bytes of payload `write` fills in; returns `false` if there is no room for one.
fn push_frame(port: &mut DpdkPort, bytes: usize, write: impl FnOnce(&mut [u8])) -> bool {
    let Some(frame) = port.buffer() else {
        return false;
    };
    let Some((head, body)) = frame.split_first_chunk_mut::<HEAD_BYTES>() else {
        return false;
    };
    *head = HEAD;
    write(&mut body[..bytes]);
    port.push((HEAD_BYTES + bytes).max(LEAST_FRAME_BYTES));
    true
}

/// Calls `each` with the payload of every frame that has arrived.
fn for_each_frame(port: &mut DpdkPort, mut each: impl FnMut(&[u8])) {
    for index in 0..port.receive() {
        let frame = port.received(index).and_then(|it| it.split_first_chunk());
        if let Some((&HEAD, body)) = frame {
            each(body);
        }
    }
}

/// The place of packet `number` in the buffer; messages of `bytes` bytes rotate over [`BUFFERS`] places.
fn place_of(number: u64, bytes: usize) -> Range<usize> {
    let number = usize::try_from(number).unwrap_or(0);
    let in_message = bytes.div_ceil(PACKET_BYTES);
    let message = number / in_message % BUFFERS * bytes;
    let start = number % in_message * PACKET_BYTES;
    message + start..message + bytes.min(start + PACKET_BYTES)
}

/// Writes a packet: number, payload, checksum.
fn encode(body: &mut [u8], number: u64, part: &[u8]) {
    body[..8].copy_from_slice(&number.to_ne_bytes());
    body[8..8 + part.len()].copy_from_slice(part);
    let sum = crc32fast::hash(&body[..8 + part.len()]);
    body[8 + part.len()..].copy_from_slice(&sum.to_ne_bytes());
}

/// Copies the payload of a packet to its place, if its number and its checksum are right; returns whether they are.
fn decode(body: &[u8], number: u64, place: &mut [u8]) -> bool {
    let Some((encoded, sum)) = body.split_at_checked(8 + place.len()) else {
        return false;
    };
    let is_valid =
        number_in(body) == number && sum.starts_with(&crc32fast::hash(encoded).to_ne_bytes());
    if is_valid {
        place.copy_from_slice(&encoded[8..]);
    }
    is_valid
}

fn number_in(body: &[u8]) -> u64 {
    body.first_chunk()
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// The Ethernet header: broadcast, a local source address, and an EtherType for local experiments (IEEE 802).
const HEAD: [u8; HEAD_BYTES] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5,
];
const HEAD_BYTES: usize = 14;
const LEAST_FRAME_BYTES: usize = 60;
/// The size of a packet's number and checksum.
const NUMBER_AND_CHECKSUM_BYTES: usize = 12;
/// The payload of rmpi's packets over Ethernet of 1,500 bytes.
const PACKET_BYTES: usize = 1408;
const FRAME_BYTES: usize = HEAD_BYTES + NUMBER_AND_CHECKSUM_BYTES + PACKET_BYTES;
/// Messages per window.
pub(super) const MESSAGES: u64 = 64;
/// Maximum number of packets in flight, and the number of packets that one acknowledgement covers. The receive queue of
/// every device has room for more.
const IN_FLIGHT: u64 = 256;
const ACKNOWLEDGED: u64 = 64;
const FILL: u8 = 0x5a;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_ranks_name_the_devices_of_both_ends() {
        let two = devices_of(&memif_ports()).unwrap();
        assert!(two[0].starts_with("net_memif77,role=server,"), "{two:?}");
        for wrong in [
            "",
            "10.9.0.1 net_memif0",
            "10.9.0.1;10.9.0.2",
            "1 net_a;2 net_b;3 net_c",
            "10.9.0.1 net_a mtu=4200;10.9.0.2 net_b mtu=4200",
            "10.9.0.1 3b:00.2;10.9.0.2 3b:00.3",
            "/etc/rmpi/dpdk",
        ] {
            assert_eq!(devices_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_packet_is_delivered_if_it_is_undamaged() {
        let (part, mut place) = ([7; 100], [0; 100]);
        let mut body = [0; NUMBER_AND_CHECKSUM_BYTES + 100];
        encode(&mut body, 9, &part);
        assert!(decode(&body, 9, &mut place) && place == part);
        assert!(!decode(&body, 8, &mut place));
        assert!(!decode(&body[..50], 9, &mut place));
        body[40] ^= 1;
        place = [0; 100];
        assert!(!decode(&body, 9, &mut place) && place == [0; 100]);
    }

    #[test]
    fn packets_cover_a_message_and_places_rotate() {
        assert_eq!(place_of(0, 3500), 0..1408);
        assert_eq!(place_of(2, 3500), 2816..3500);
        assert_eq!(place_of(3, 3500), 3500..4908);
        assert_eq!(place_of(3 * BUFFERS as u64, 3500), 0..1408);
    }
}
