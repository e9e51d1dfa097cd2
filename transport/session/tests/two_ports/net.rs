// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte streams between two ends, as in a bad network: they transfer any number of bytes at a time, are slow, break
//! within a frame, and each end detects that at some later time, or never. A seed determines the run.

use std::collections::VecDeque;

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// A random word.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word().to_le_bytes()[0]).collect()
    }
}

/// The stream has ended.
#[derive(Debug)]
pub(crate) struct Gone;

/// All streams between end 0 and end 1.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) random: Random,
    streams: Vec<Stream>,
    /// Streams opened to an end, and when it sees them.
    incoming: [VecDeque<(u64, usize)>; 2],
    /// Until this time everything is silently dropped.
    pub(crate) down_until_ns: u64,
}

#[derive(Debug, Default)]
struct Stream {
    /// Bytes from each end.
    directions: [Direction; 2],
    /// When each end detects that it has ended.
    ended: [Option<u64>; 2],
    /// It accepts everything and delivers nothing.
    is_blackhole: bool,
}

#[derive(Debug, Default)]
struct Direction {
    /// Bytes, and when they arrive.
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Direction {
    /// All but the first `keep` bytes are lost.
    fn cut(&mut self, keep: usize) {
        let mut left = keep;
        for (_, piece) in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
        self.pieces.retain(|(_, piece)| !piece.is_empty());
        self.bytes = keep - left;
    }
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            streams: Vec::new(),
            incoming: Default::default(),
            down_until_ns: 0,
        }
    }

    /// A random delay.
    fn delay_ns(&mut self) -> u64 {
        let most = if self.random.once_in(50) { 30_000 } else { 300 };
        1000 * (1 + self.random.below(most) as u64)
    }

    /// An end opens a stream to the other.
    pub(crate) fn dial(&mut self, now_ns: u64, side: usize) -> usize {
        let stream = self.streams.len();
        self.streams.push(Stream {
            is_blackhole: now_ns < self.down_until_ns,
            ..Stream::default()
        });
        if now_ns >= self.down_until_ns {
            let seen_ns = now_ns + self.delay_ns();
            self.incoming[1 - side].push_back((seen_ns, stream));
        }
        stream
    }

    /// A stream that the other end, or a foreign process, has opened.
    pub(crate) fn accepted(&mut self, now_ns: u64, side: usize) -> Option<usize> {
        let (seen_ns, stream) = *self.incoming[side].front()?;
        (seen_ns <= now_ns).then(|| self.incoming[side].pop_front())?;
        Some(stream)
    }

    /// Reads some of the bytes that have arrived.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        stream: usize,
        side: usize,
        place: &mut [u8],
    ) -> Result<usize, Gone> {
        let most = 1 + self.random.below(place.len());
        let it = &mut self.streams[stream];
        let direction = &mut it.directions[1 - side];
        let mut read = 0;
        while read < most
            && let Some((there_ns, piece)) = direction.pieces.front_mut()
            && *there_ns <= now_ns
        {
            let count = piece.len().min(most - read);
            place[read..read + count].copy_from_slice(&piece[..count]);
            piece.drain(..count);
            read += count;
            if piece.is_empty() {
                direction.pieces.pop_front();
            }
        }
        direction.bytes -= read;
        let is_over = it.ended[side].is_some_and(|ended_ns| ended_ns <= now_ns);
        if read == 0 && is_over {
            Err(Gone)
        } else {
            Ok(read)
        }
    }

    /// Writes some of the bytes.
    pub(crate) fn write(
        &mut self,
        now_ns: u64,
        stream: usize,
        side: usize,
        bytes: &[u8],
    ) -> Result<usize, Gone> {
        let (ready_ns, part) = (now_ns + self.delay_ns(), self.random.below(bytes.len() + 1));
        let it = &mut self.streams[stream];
        if it.ended[side].is_some_and(|ended_ns| ended_ns <= now_ns) {
            return Err(Gone);
        }
        let direction = &mut it.directions[side];
        let count = part.min(MOST_UNDER_WAY.saturating_sub(direction.bytes));
        if it.is_blackhole || it.ended[side].is_some() || now_ns < self.down_until_ns {
            it.is_blackhole = true;
            return Ok(count);
        }
        if count != 0 {
            // Order is preserved.
            let last_ns = direction.pieces.back().map_or(0, |(there_ns, _)| *there_ns);
            let piece = bytes[..count].to_vec();
            direction.pieces.push_back((ready_ns.max(last_ns), piece));
            direction.bytes += count;
        }
        Ok(count)
    }

    /// An end closes it.
    pub(crate) fn close(&mut self, now_ns: u64, stream: usize, side: usize) {
        let found_ns = now_ns + self.delay_ns();
        self.streams[stream].ended[side] = Some(0);
        self.end_for(stream, 1 - side, found_ns);
    }

    /// Breaks one of the latest streams.
    pub(crate) fn reset_some(&mut self, now_ns: u64) {
        if self.streams.is_empty() {
            return;
        }
        // Most likely the latest is in use.
        let back = 1 + self.random.below(self.streams.len().min(3));
        let stream = self.streams.len() - back;
        for side in [0, 1] {
            let found_ns = now_ns + self.delay_ns();
            self.end_for(stream, side, found_ns);
        }
    }

    /// Some of the bytes on their way to an end are lost, then the end detects that the stream has ended.
    fn end_for(&mut self, stream: usize, side: usize, found_ns: u64) {
        let it = &mut self.streams[stream];
        let direction = &mut it.directions[1 - side];
        let keep = self.random.below(direction.bytes + 1);
        direction.cut(keep);
        it.ended[side].get_or_insert(found_ns);
    }

    /// The latest stream silently delivers nothing any more.
    pub(crate) fn make_blackhole(&mut self) {
        if let Some(stream) = self.streams.last_mut() {
            stream.is_blackhole = true;
            stream
                .directions
                .iter_mut()
                .for_each(|direction| direction.cut(0));
        }
    }

    /// A foreign process opens a stream to an end, and sends these bytes.
    pub(crate) fn open_from_stranger(&mut self, now_ns: u64, side: usize, bytes: Vec<u8>) {
        let mut stream = Stream::default();
        let direction = &mut stream.directions[1 - side];
        direction.bytes = bytes.len();
        direction.pieces.push_back((now_ns, bytes));
        self.incoming[side].push_back((now_ns, self.streams.len()));
        self.streams.push(stream);
    }
}

/// Limit of unread bytes of a stream.
const MOST_UNDER_WAY: usize = 3000;
