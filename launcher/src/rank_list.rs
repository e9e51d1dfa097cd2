// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses rank lists of the command line: `0,2-3` or `all`.

/// The ranks of a list, each once, in the order of the list. The error is a message for the user. `size`: number of
/// ranks of the job.
pub(crate) fn parse(text: &str, size: u32) -> Result<Vec<u32>, String> {
    if text == "all" {
        return Ok((0..size).collect());
    }
    let mut chosen = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            return Err(format!(
                "`{part}` is no rank; expected numbers and ranges, for example 0,2-3, or all"
            ));
        };
        if first > last {
            return Err(format!("{part} ends before it begins"));
        }
        if last >= size {
            return Err(format!(
                "there is no rank {last}: the job has {size}, which count from 0"
            ));
        }
        for rank in first..=last {
            if !chosen.contains(&rank) {
                chosen.push(rank);
            }
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_lists_keep_order_without_duplicates() {
        assert_eq!(parse("3,0-1,1", 4), Ok(vec![3, 0, 1]));
        assert_eq!(parse("all", 3), Ok(vec![0, 1, 2]));
    }

    #[test]
    fn invalid_rank_lists_state_the_expected_form() {
        for text in ["", "a", "1,", "-1", "1-", "0x1"] {
            let message = parse(text, 4).unwrap_err();
            assert!(message.contains("for example 0,2-3"), "{text}: {message}");
        }
        assert_eq!(parse("2-1", 4).unwrap_err(), "2-1 ends before it begins");
        let message = "there is no rank 4: the job has 4, which count from 0";
        assert_eq!(parse("0,2-4", 4).unwrap_err(), message);
    }
}
