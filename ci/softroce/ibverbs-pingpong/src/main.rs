// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibverbs-pingpong DEVICE_A DEVICE_B GID_INDEX BYTES SECONDS [HOST]`: the latency of a message between two devices
//! for a program that uses only the crate `ibverbs`.
//!
//! It measures as `../pingpong.c` does, whose latency is lower: this crate posts sends neither inline nor unsignalled
//! and has no shared receive queues, so for each message the device must read the payload from memory and report the
//! completion of the send. There are two processes, each on one of the devices with a reliable queue pair; the second
//! process is this program with `--echo`, on this machine or started on HOST by ssh. Prints minimum, median and 99th
//! percentile of batches of half a millisecond, in microseconds for one direction.
//!
//! **Knows** only the crate `ibverbs`.
//! **Never** uses a line of rmpi: rmpi is measured against it.
//!
//! # Safety
//! Posted receives and sends name ranges of a region that lives as long as their queue pair. A range is read or written
//! again only after its completion.

use ibverbs::{CompletionQueue, MemoryRegion, QueuePair, QueuePairEndpoint, ibv_qp_type, ibv_wc};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, String>;

/// The number of posted receives.
const RECEIVES: usize = 64;
const MAX_BYTES: usize = 256;
const BATCH: Duration = Duration::from_micros(500);
/// The first byte of a message. Both values request that the message is sent back; after `LAST`, the process that sends
/// it back also ends.
const PING: u8 = 0;
const LAST: u8 = 1;
/// The work request id of sends; those of receives are their slots.
const SEND: u64 = u64::MAX;

/// One side: a connected queue pair with its memory. Slots 0 to `RECEIVES` - 1 are for receives, the last is for sends.
struct Side<'a> {
    pair: QueuePair<'a>,
    queue: &'a CompletionQueue<'a>,
    memory: MemoryRegion<u8>,
    bytes: usize,
    sends_done: u64,
    sends_posted: u64,
    /// The first bytes of messages that have arrived and that [`Side::receive`] has not returned yet.
    received: Vec<u8>,
}

impl Side<'_> {
    fn post_receive(&mut self, slot: usize) -> Result<()> {
        let start = slot * MAX_BYTES;
        // SAFETY: The region lives as long as the queue pair, in the same structure, and the slot is read only after
        // its completion.
        unsafe {
            self.pair
                .post_receive(&mut self.memory, start..start + MAX_BYTES, slot as u64)
        }
        .map_err(|why| format!("post_receive: {why}"))
    }

    fn send(&mut self, kind: u8) -> Result<()> {
        while self.sends_done < self.sends_posted {
            self.poll()?;
        }
        let start = RECEIVES * MAX_BYTES;
        self.memory[start] = kind;
        // SAFETY: The region lives as long as the queue pair, in the same structure; the slot is written again only
        // after the completion of this send, for which the loop waits.
        unsafe {
            self.pair
                .post_send(&mut self.memory, start..start + self.bytes, SEND)
        }
        .map_err(|why| format!("post_send: {why}"))?;
        self.sends_posted += 1;
        Ok(())
    }

    /// Waits for a message and returns its first byte.
    fn receive(&mut self) -> Result<u8> {
        loop {
            if let Some(kind) = self.received.pop() {
                return Ok(kind);
            }
            self.poll()?;
        }
    }

    fn poll(&mut self) -> Result<()> {
        let mut space = [ibv_wc::default(); 4];
        let done = self
            .queue
            .poll(&mut space)
            .map_err(|why| format!("poll: {why}"))?;
        for completion in done {
            if let Some((status, _)) = completion.error() {
                return Err(format!("a completion has status {status:?}"));
            }
            if completion.wr_id() == SEND {
                self.sends_done += 1;
                continue;
            }
            let slot = usize::try_from(completion.wr_id()).map_err(|why| why.to_string())?;
            self.received.push(self.memory[slot * MAX_BYTES]);
            self.post_receive(slot)?;
        }
        Ok(())
    }

    /// Sends every message back; returns after a message that begins with [`LAST`].
    fn echo(&mut self) -> Result<()> {
        loop {
            let kind = self.receive()?;
            self.send(kind)?;
            if kind == LAST {
                break;
            }
        }
        // This process does not end immediately: if the acknowledgement of the other process's last send was lost, the
        // device must be able to repeat it.
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    }

    fn batch(&mut self, count: u32) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..count {
            self.send(PING)?;
            self.receive()?;
        }
        Ok(start.elapsed())
    }

    /// Microseconds for one direction, of each batch, ascending.
    fn measure(&mut self, time: Duration) -> Result<Vec<f64>> {
        let mut count = 1;
        let mut warmed = 0;
        while warmed < 500 || self.batch(count)? < BATCH {
            if self.batch(count)? < BATCH {
                count *= 2;
            }
            warmed += count;
        }
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < time {
            times.push(self.batch(count)?.as_secs_f64() / f64::from(count) / 2.0 * 1e6);
        }
        self.send(LAST)?;
        self.receive()?;
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}

/// Connects a queue pair of `device` with that of the other process and runs `body`. `input` and `output` lead to the
/// other process.
fn connected<T>(
    device: &str,
    gid_index: u32,
    bytes: usize,
    input: impl Read,
    mut output: impl Write,
    body: impl FnOnce(&mut Side) -> Result<T>,
) -> Result<T> {
    let said = |what: &'static str| move |why: io::Error| format!("{device}: {what}: {why}");
    let devices = ibverbs::devices().map_err(said("devices"))?;
    let found = devices
        .iter()
        .find(|it| {
            it.name()
                .is_some_and(|name| name.to_bytes() == device.as_bytes())
        })
        .ok_or_else(|| format!("there is no device {device}"))?;
    let context = found.open().map_err(said("open"))?;
    let depth = i32::try_from(2 * RECEIVES).map_err(|why| why.to_string())?;
    let queue = context
        .create_cq(depth, 0)
        .map_err(said("completion queue"))?;
    let domain = context.alloc_pd().map_err(said("protection domain"))?;
    let prepared = domain
        .create_qp(&queue, &queue, ibv_qp_type::IBV_QPT_RC)
        .set_gid_index(gid_index)
        .set_max_send_wr(2)
        .set_max_recv_wr(RECEIVES as u32)
        .build()
        .map_err(said("queue pair"))?;

    let mut input = BufReader::new(input);
    let mine = serde_json::to_string(&prepared.endpoint()).map_err(|why| why.to_string())?;
    let theirs = exchange(&mut input, &mut output, &mine)?;
    let theirs: QueuePairEndpoint =
        serde_json::from_str(&theirs).map_err(|why| format!("{theirs:?}: {why}"))?;
    let mut side = Side {
        pair: prepared.handshake(theirs).map_err(said("handshake"))?,
        queue: &queue,
        memory: domain
            .allocate((RECEIVES + 1) * MAX_BYTES)
            .map_err(said("memory region"))?,
        bytes,
        sends_done: 0,
        sends_posted: 0,
        received: Vec::new(),
    };
    for slot in 0..RECEIVES {
        side.post_receive(slot)?;
    }
    exchange(&mut input, &mut output, "ready")?;
    body(&mut side)
}

/// Sends a line, and returns the line that the other process sends.
fn exchange(input: &mut impl BufRead, output: &mut impl Write, line: &str) -> Result<String> {
    let mut theirs = String::new();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .and_then(|()| input.read_line(&mut theirs))
        .map_err(|why| format!("the other process: {why}"))?;
    Ok(theirs)
}

/// Starts this program again, for the other device.
fn start_echo(args: &[String], host: Option<&String>) -> Result<Child> {
    let program = std::env::current_exe().map_err(|why| why.to_string())?;
    let mut command = match host {
        Some(host) => {
            let mut ssh = Command::new("ssh");
            ssh.arg(host).arg(program);
            ssh
        }
        None => Command::new(program),
    };
    command.arg("--echo").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
        .spawn()
        .map_err(|why| format!("the other process: {why}"))
}

fn run(args: &[String]) -> Result<()> {
    let usage = format!(
        "usage: ibverbs-pingpong DEVICE_A DEVICE_B GID_INDEX BYTES SECONDS [HOST] (1 to {MAX_BYTES} bytes)"
    );
    let numbers = |gid: &str, bytes: &str| -> Result<(u32, usize)> {
        let bytes = bytes.parse().ok().filter(|it| (1..=MAX_BYTES).contains(it));
        gid.parse().ok().zip(bytes).ok_or_else(|| usage.clone())
    };
    match args {
        [flag, device, gid, bytes] if flag == "--echo" => {
            let (gid, bytes) = numbers(gid, bytes)?;
            connected(device, gid, bytes, io::stdin(), io::stdout(), |side| {
                side.echo()
            })
        }
        [a, b, gid, bytes, seconds, host @ ..] if host.len() < 2 => {
            let (gid_index, size) = numbers(gid, bytes)?;
            let seconds = seconds
                .parse()
                .ok()
                .and_then(|it| Duration::try_from_secs_f64(it).ok());
            let time = seconds.ok_or_else(|| usage.clone())?;
            let mut other = start_echo(&[b.clone(), gid.clone(), bytes.clone()], host.first())?;
            let (input, output) = other
                .stdout
                .take()
                .zip(other.stdin.take())
                .ok_or("no pipes")?;
            let times = connected(a, gid_index, size, input, output, |side| side.measure(time))?;
            let status = other.wait().map_err(|why| why.to_string())?;
            let at = |part: usize| {
                times
                    .get(times.len() * part / 100)
                    .copied()
                    .unwrap_or(f64::NAN)
            };
            println!("{:.2} {:.2} {:.2}", at(0), at(50), at(99));
            if status.success() {
                Ok(())
            } else {
                Err(format!("the other process: {status}"))
            }
        }
        _ => Err(usage),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
