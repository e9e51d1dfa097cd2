// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts between bytes and words, for bodies inside a frame, without a loop over bytes and without a call.

use ring::SLOT_BODY_BYTES;

/// Calls `put` for each word of a body, in the order of memory. Bytes of the last word after the end of the body are
/// zero.
#[inline(always)]
pub(crate) fn pack(body: &[u8], mut put: impl FnMut(usize, u64)) {
    let (whole, rest) = body.as_chunks::<8>();
    for (index, bytes) in whole.iter().enumerate() {
        put(index, u64::from_ne_bytes(*bytes));
    }
    if rest.is_empty() {
        return;
    }
    let word = match body.last_chunk::<8>() {
        // The last eight bytes, the first of which belong to the previous word.
        Some(last) => (u64::from_le_bytes(*last) >> (8 * (8 - rest.len()))).to_le(),
        None => pack_short(rest),
    };
    put(whole.len(), word);
}

/// Packs one to seven bytes into a word, as two parts that may overlap.
#[inline(always)]
fn pack_short(bytes: &[u8]) -> u64 {
    let join = |first: u64, last: u64, part: usize| first | last << (8 * (bytes.len() - part));
    let word = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        join(first.into(), last.into(), 4)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u16::from_le_bytes(*first), u16::from_le_bytes(*last));
        join(first.into(), last.into(), 2)
    } else {
        bytes.first().copied().unwrap_or(0).into()
    };
    word.to_le()
}

/// Fills `target` with the bytes of the words, at most [`SLOT_BODY_BYTES`]; the rest of `target` is unchanged.
#[inline(always)]
pub(crate) fn unpack(word: impl Fn(usize) -> u64, target: &mut [u8]) {
    let bytes = target.len().min(SLOT_BODY_BYTES);
    let target = &mut target[..bytes];
    let (whole, rest) = target.as_chunks_mut::<8>();
    let count = whole.len();
    for (at, place) in whole.iter_mut().enumerate() {
        *place = word(at).to_ne_bytes();
    }
    if rest.is_empty() {
        return;
    }
    let (last, length) = (word(count).to_le(), rest.len());
    match target.last_chunk_mut::<8>() {
        // The last eight bytes, the first of which belong to the previous word.
        Some(place) => {
            let before = word(count - 1).to_le();
            let joined = before >> (8 * length) | last << (8 * (8 - length));
            *place = joined.to_le_bytes();
        }
        None => unpack_short(last, target),
    }
}

/// Copies a body of `bytes` bytes to `target`; returns how many fit.
#[inline(always)]
pub(crate) fn copy(words: &[u64], bytes: usize, target: &mut [u8]) -> usize {
    if bytes == 8
        && let Some(target) = target.first_chunk_mut::<8>()
    {
        *target = words[0].to_ne_bytes();
        return 8;
    }
    copy_all(words, bytes, target)
}

#[inline(never)]
fn copy_all(words: &[u64], bytes: usize, target: &mut [u8]) -> usize {
    let bytes = bytes.min(target.len()).min(8 * words.len());
    unpack(|at| words[at], &mut target[..bytes]);
    bytes
}

/// Unpacks one to seven bytes of a word.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "parts are cut out of the word"
)]
fn unpack_short(word: u64, target: &mut [u8]) {
    let length = target.len();
    if let Some(place) = target.first_chunk_mut::<4>() {
        *place = (word as u32).to_le_bytes();
        if let Some(place) = target.last_chunk_mut::<4>() {
            *place = ((word >> (8 * (length - 4))) as u32).to_le_bytes();
        }
    } else if let Some(place) = target.first_chunk_mut::<2>() {
        *place = (word as u16).to_le_bytes();
        if let Some(place) = target.last_chunk_mut::<2>() {
            *place = ((word >> (8 * (length - 2))) as u16).to_le_bytes();
        }
    } else if let [place] = target {
        *place = word as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_all_lengths_survive_packing() {
        let body: Vec<u8> = (1..).take(SLOT_BODY_BYTES).collect();
        for length in 0..=SLOT_BODY_BYTES {
            let mut words = Vec::new();
            pack(&body[..length], |index, word| {
                assert_eq!(index, words.len());
                words.push(word);
            });
            assert_eq!(words.len(), length.div_ceil(8));
            let mut bytes = words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<_>>();
            assert_eq!(bytes[..length], body[..length], "{length} bytes");
            assert!(bytes[length..].iter().all(|byte| *byte == 0));
            // Bytes of the last word after the end are arbitrary.
            bytes[length..].fill(0xee);
            let words: Vec<u64> = bytes
                .as_chunks()
                .0
                .iter()
                .map(|it| u64::from_ne_bytes(*it))
                .collect();
            let mut target = [0xaa; SLOT_BODY_BYTES + 1];
            unpack(|at| words[at], &mut target[..length]);
            assert_eq!(target[..length], body[..length], "{length} bytes");
            assert!(
                target[length..].iter().all(|byte| *byte == 0xaa),
                "{length} bytes"
            );
        }
    }
}
