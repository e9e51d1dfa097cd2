// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of bytes between two ends, as a bad network has them: they take and give any number of bytes at a time, are slow, end in
//! the middle of a frame, and each end finds that out when it likes, or never. A seed decides.

use std::collections::VecDeque;

/// Numbers that a seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Any word.
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

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word().to_le_bytes()[0]).collect()
    }
}

/// This stream is over.
#[derive(Debug)]
pub(crate) struct Gone;

/// All streams between end 0 and end 1.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) random: Random,
    streams: Vec<Stream>,
    /// Streams that an end was dialled with, and when it sees that.
    knocks: [VecDeque<(u64, usize)>; 2],
    /// Until this time nothing gets through, and nobody is told so.
    pub(crate) down_until_ns: u64,
}

#[derive(Debug, Default)]
struct Stream {
    /// Bytes from each end.
    ways: [Way; 2],
    /// When each end finds that it is over.
    ended: [Option<u64>; 2],
    /// It takes everything and brings nothing.
    is_black: bool,
}

#[derive(Debug, Default)]
struct Way {
    /// Bytes, and when they are there.
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Way {
    /// All but the first so many bytes are lost.
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
            knocks: Default::default(),
            down_until_ns: 0,
        }
    }

    /// A time that something takes.
    fn delay_ns(&mut self) -> u64 {
        let most = if self.random.once_in(50) { 30_000 } else { 300 };
        1000 * (1 + self.random.below(most) as u64)
    }

    /// An end begins a stream to the other.
    pub(crate) fn dial(&mut self, now_ns: u64, side: usize) -> usize {
        let stream = self.streams.len();
        self.streams.push(Stream {
            is_black: now_ns < self.down_until_ns,
            ..Stream::default()
        });
        if now_ns >= self.down_until_ns {
            let seen_ns = now_ns + self.delay_ns();
            self.knocks[1 - side].push_back((seen_ns, stream));
        }
        stream
    }

    /// A stream that the other end, or a stranger, has begun.
    pub(crate) fn accepted(&mut self, now_ns: u64, side: usize) -> Option<usize> {
        let (seen_ns, stream) = *self.knocks[side].front()?;
        (seen_ns <= now_ns).then(|| self.knocks[side].pop_front())?;
        Some(stream)
    }

    /// Reads some bytes of those that have come.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        stream: usize,
        side: usize,
        place: &mut [u8],
    ) -> Result<usize, Gone> {
        let most = 1 + self.random.below(place.len());
        let it = &mut self.streams[stream];
        let way = &mut it.ways[1 - side];
        let mut read = 0;
        while read < most
            && let Some((there_ns, piece)) = way.pieces.front_mut()
            && *there_ns <= now_ns
        {
            let count = piece.len().min(most - read);
            place[read..read + count].copy_from_slice(&piece[..count]);
            piece.drain(..count);
            read += count;
            if piece.is_empty() {
                way.pieces.pop_front();
            }
        }
        way.bytes -= read;
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
        let way = &mut it.ways[side];
        let count = part.min(MOST_UNDER_WAY.saturating_sub(way.bytes));
        if it.is_black || it.ended[side].is_some() || now_ns < self.down_until_ns {
            it.is_black = true;
            return Ok(count);
        }
        if count != 0 {
            // Nothing overtakes anything.
            let last_ns = way.pieces.back().map_or(0, |(there_ns, _)| *there_ns);
            let piece = bytes[..count].to_vec();
            way.pieces.push_back((ready_ns.max(last_ns), piece));
            way.bytes += count;
        }
        Ok(count)
    }

    /// An end wants no more of it.
    pub(crate) fn close(&mut self, now_ns: u64, stream: usize, side: usize) {
        let found_ns = now_ns + self.delay_ns();
        self.streams[stream].ended[side] = Some(0);
        self.end_for(stream, 1 - side, found_ns);
    }

    /// Some stream breaks.
    pub(crate) fn reset_some(&mut self, now_ns: u64) {
        if self.streams.is_empty() {
            return;
        }
        // Most likely the newest is in use.
        let back = 1 + self.random.below(self.streams.len().min(3));
        let stream = self.streams.len() - back;
        for side in [0, 1] {
            let found_ns = now_ns + self.delay_ns();
            self.end_for(stream, side, found_ns);
        }
    }

    /// Some of what is on its way to an end is lost, then the end finds that the stream is over.
    fn end_for(&mut self, stream: usize, side: usize, found_ns: u64) {
        let it = &mut self.streams[stream];
        let way = &mut it.ways[1 - side];
        let keep = self.random.below(way.bytes + 1);
        way.cut(keep);
        it.ended[side].get_or_insert(found_ns);
    }

    /// The newest stream brings nothing any more, and does not say so.
    pub(crate) fn blacken(&mut self) {
        if let Some(stream) = self.streams.last_mut() {
            stream.is_black = true;
            stream.ways.iter_mut().for_each(|way| way.cut(0));
        }
    }

    /// Somebody who is nobody begins a stream to an end, and sends this.
    pub(crate) fn knock(&mut self, now_ns: u64, side: usize, bytes: Vec<u8>) {
        let mut stream = Stream::default();
        let way = &mut stream.ways[1 - side];
        way.bytes = bytes.len();
        way.pieces.push_back((now_ns, bytes));
        self.knocks[side].push_back((now_ns, self.streams.len()));
        self.streams.push(stream);
    }
}

/// Bytes of a stream that nobody has read, at most.
const MOST_UNDER_WAY: usize = 3000;
