// SPDX-License-Identifier: MIT OR Apache-2.0
//! Map from rank to node, with a text form. `0+4x16` means that nodes 0 to 3 have 16 consecutive ranks each, from rank
//! 0 on; `0+4x1*16` means that the ranks are assigned to these nodes round-robin, one at a time, in 16 rounds.
//!
//! ```text
//! map     = stretch *("," stretch)
//! stretch = FIRST "+" NODES "x" EACH ["*" TIMES]     the next EACH ranks on node FIRST, as many on the one after it, ...; TIMES times
//! ```

use std::fmt;

/// The node of each rank of a job; node numbers are arbitrary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMap {
    /// In rank order; no two adjacent stretches can be merged.
    stretches: Vec<Stretch>,
    ranks: u32,
}

/// Consecutive ranks on consecutive nodes, the same number on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// The first rank.
    rank: u32,
    /// The node of the first rank.
    node: u32,
    nodes: u32,
    each: u32,
}

impl Stretch {
    fn ranks(self) -> Option<u32> {
        self.nodes.checked_mul(self.each)
    }

    /// The ranks of this stretch on node `node`.
    fn ranks_of(self, node: u32) -> std::ops::Range<u32> {
        let block = node.checked_sub(self.node);
        let block = block.filter(|block| *block < self.nodes);
        block.map_or(0..0, |block| {
            let first = self.rank + block * self.each;
            first..first + self.each
        })
    }

    fn is_like(self, other: &Self) -> bool {
        (self.node, self.nodes, self.each) == (other.node, other.nodes, other.each)
    }
}

impl NodeMap {
    /// Builds the map from the node of each rank, in rank order. `None` if there are no ranks, or if the placement is
    /// too irregular for a text of reasonable length.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = u32>) -> Option<Self> {
        Self::of_at_most(MOST_STRETCHES, nodes)
    }

    /// Builds the map from the node of each rank, in rank order, however irregular the placement is; the map takes 16
    /// bytes per stretch. `None` if there are no ranks.
    #[must_use]
    pub fn of_any(nodes: impl IntoIterator<Item = u32>) -> Option<Self> {
        Self::of_at_most(usize::MAX, nodes)
    }

    fn of_at_most(stretches: usize, nodes: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut map = Self {
            stretches: Vec::new(),
            ranks: 0,
        };
        let mut nodes = nodes.into_iter().peekable();
        while let Some(node) = nodes.next() {
            let mut each = 1;
            while nodes.next_if_eq(&node).is_some() {
                each += 1;
            }
            map.add(node, each)?;
            if map.stretches.len() > stretches {
                return None;
            }
        }
        map.stretches.shrink_to_fit();
        (map.ranks > 0).then_some(map)
    }

    /// Appends `each` ranks on node `node`.
    fn add(&mut self, node: u32, each: u32) -> Option<()> {
        let rank = self.ranks;
        self.ranks = rank.checked_add(each)?;
        let goes_on = |last: &&mut Stretch| {
            last.each == each && last.node.checked_add(last.nodes) == Some(node)
        };
        if let Some(last) = self.stretches.last_mut().filter(goes_on) {
            last.nodes += 1;
            return Some(());
        }
        self.stretches.push(Stretch {
            rank,
            node,
            nodes: 1,
            each,
        });
        Some(())
    }

    /// Parses the output of [`Display`](fmt::Display); `None` for anything else and for a number of ranks other than
    /// `ranks`.
    #[must_use]
    pub fn parse(text: &str, ranks: u32) -> Option<Self> {
        let mut map = Self {
            stretches: Vec::new(),
            ranks: 0,
        };
        for part in text.split(',') {
            let (part, times) = part.split_once('*').unwrap_or((part, "1"));
            let (node, counts) = part.split_once('+')?;
            let (nodes, each) = counts.split_once('x')?;
            let [node, nodes, each, times] = [node, nodes, each, times].map(|text| {
                let is_plain = text.bytes().all(|digit| digit.is_ascii_digit());
                text.parse::<u32>().ok().filter(|_| is_plain)
            });
            let stretch = Stretch {
                rank: 0,
                node: node?,
                nodes: nodes?,
                each: each?,
            };
            let count = stretch.ranks().filter(|count| *count > 0)?;
            stretch.node.checked_add(stretch.nodes)?;
            for _ in 0..times? {
                let rank = map.ranks;
                map.stretches.push(Stretch { rank, ..stretch });
                map.ranks = rank.checked_add(count).filter(|sum| *sum <= ranks)?;
                if map.stretches.len() > MOST_STRETCHES {
                    return None;
                }
            }
        }
        (map.ranks == ranks && ranks > 0).then_some(map)
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The stretches in rank order: first node, number of nodes, and number of ranks on each node.
    pub fn blocks(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        let stretches = self.stretches.iter();
        stretches.map(|stretch| (stretch.node, stretch.nodes, stretch.each))
    }

    /// The node of a rank; `None` if there is no such rank.
    #[must_use]
    pub fn node_of(&self, rank: u32) -> Option<u32> {
        if rank >= self.ranks {
            return None;
        }
        let after = self
            .stretches
            .partition_point(|stretch| stretch.rank <= rank);
        let stretch = self.stretches.get(after.checked_sub(1)?)?;
        Some(stretch.node + (rank - stretch.rank) / stretch.each)
    }

    /// The ranks of a node, in ascending order. Scans all stretches; see [`by_node`](Self::by_node).
    pub fn ranks_of(&self, node: u32) -> impl Iterator<Item = u32> {
        self.stretches
            .iter()
            .flat_map(move |stretch| stretch.ranks_of(node))
    }

    /// Indexes the map, for queries about many nodes.
    #[must_use]
    pub fn by_node(self) -> ByNode {
        let covered = |stretch: &Stretch| stretch.node..stretch.node + stretch.nodes;
        let nodes = self.stretches.iter().map(|stretch| covered(stretch).end);
        let nodes = nodes.max().unwrap_or(0) as usize;
        if self.stretches.len() <= FEW_STRETCHES {
            return ByNode {
                map: self,
                ends: Vec::new(),
                stretches: Vec::new(),
            };
        }
        // Counting sort: count the stretches of each node, compute the end position of each node, and then insert the
        // stretches, from the last to the first.
        let mut ends = vec![0_u32; nodes];
        for node in self.stretches.iter().flat_map(covered) {
            ends[node as usize] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum;
        }
        let mut begins = ends.clone();
        let mut stretches = vec![0; sum as usize];
        let count = u32::try_from(self.stretches.len()).unwrap_or(u32::MAX);
        for (number, stretch) in (0..count).rev().zip(self.stretches.iter().rev()) {
            for node in covered(stretch) {
                let place = &mut begins[node as usize];
                *place -= 1;
                stretches[*place as usize] = number;
            }
        }
        ByNode {
            map: self,
            ends,
            stretches,
        }
    }
}

/// A map of at most this many stretches gets no index: a query scans all stretches.
const FEW_STRETCHES: usize = 64;

/// A [`NodeMap`] with an index of the stretches of each node. The index takes 4 bytes per node, and 4 bytes for each
/// pair of a stretch and one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByNode {
    map: NodeMap,
    /// By node: index after the node's last entry in `stretches`. Empty if the map has few stretches and therefore no
    /// index.
    ends: Vec<u32>,
    stretches: Vec<u32>,
}

impl ByNode {
    /// The ranks of a node, in ascending order.
    pub fn ranks_of(&self, node: u32) -> impl Iterator<Item = u32> {
        let few = self.ends.is_empty().then(|| self.map.ranks_of(node));
        let end = |node: Option<u32>| node.and_then(|node| self.ends.get(node as usize).copied());
        let begin = end(node.checked_sub(1)).unwrap_or(0);
        let own = end(Some(node)).map_or(0..0, |end| begin as usize..end as usize);
        let own = self.stretches[own].iter();
        let own = own.flat_map(move |number| self.map.stretches[*number as usize].ranks_of(node));
        few.into_iter().flatten().chain(own)
    }
}

impl std::ops::Deref for ByNode {
    type Target = NodeMap;

    fn deref(&self) -> &NodeMap {
        &self.map
    }
}

impl fmt::Display for NodeMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for alike in self.stretches.chunk_by(|one, next| one.is_like(next)) {
            let Stretch {
                node, nodes, each, ..
            } = alike[0];
            write!(out, "{between}{node}+{nodes}x{each}")?;
            if alike.len() > 1 {
                write!(out, "*{}", alike.len())?;
            }
            between = ",";
        }
        Ok(())
    }
}

/// Maximum number of stretches of a map that has a text form. The text must fit in an environment variable, 128 KiB in
/// Linux.
const MOST_STRETCHES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(nodes: &[u32]) -> NodeMap {
        NodeMap::new(nodes.iter().copied()).unwrap()
    }

    #[test]
    fn usual_node_maps_have_short_texts() {
        let blocks = |nodes: u32, each: u32| (0..nodes * each).map(move |rank| rank / each);
        let dealt = |nodes: u32, each: u32| (0..nodes * each).map(move |rank| rank % nodes);
        for (nodes, text) in [
            (vec![0], "0+1x1"),
            (vec![3, 3, 3], "3+1x3"),
            (vec![0, 0, 1, 1, 2], "0+2x2,2+1x1"),
            (vec![2, 0, 1, 1], "2+1x1,0+1x1,1+1x2"),
            (blocks(4, 16).collect(), "0+4x16"),
            (dealt(4, 16).collect(), "0+4x1*16"),
            (blocks(10_000, 64).collect(), "0+10000x64"),
            (dealt(10_000, 64).collect(), "0+10000x1*64"),
        ] {
            let map = map(&nodes);
            assert_eq!(map.to_string(), text);
            let count = u32::try_from(nodes.len()).unwrap();
            assert_eq!(NodeMap::parse(text, count), Some(map.clone()));
            let read = (0..count).map(|rank| map.node_of(rank).unwrap());
            assert!(read.eq(nodes));
            assert_eq!(map.node_of(count), None);
        }
    }

    #[test]
    fn malformed_text_is_rejected() {
        for text in [
            "",
            "0",
            "0+1",
            "0+1x",
            "0+1x3",
            "0+0x4",
            "0+4x0",
            "0+4x1*0",
            "+4x1",
            "-1+4x1",
            "0++4x1",
            "0+4x1,",
            "0+5x1",
            "0+4x1*2",
            "0+1x1*4294967295",
            "0+65536x65536",
            "4294967295+4x1",
            "0+4294967296x1",
        ] {
            assert_eq!(NodeMap::parse(text, 4), None, "{text}");
        }
        assert_eq!(NodeMap::parse("0+1x1*4000000000", 4_000_000_000), None);
    }

    #[test]
    fn irregular_placements_have_no_compact_map() {
        let irregular = |count: u32| NodeMap::new((0..count).map(|rank| rank * 7 % 64));
        let text = irregular(4096).unwrap().to_string();
        assert!(text.len() < 100_000);
        assert_eq!(irregular(20_000), None);
        let any = NodeMap::of_any((0..20_000).map(|rank| rank * 7 % 64)).unwrap();
        assert!((0..20_000).all(|rank| any.node_of(rank) == Some(rank * 7 % 64)));
        assert_eq!(NodeMap::new([]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[0-9+x*,]{0,30}", ranks: u32) {
            let _ = NodeMap::parse(&text, ranks);
        }

        #[test]
        fn written_text_parses_to_the_same_value(nodes in proptest::collection::vec(0..5_u32, 1..200)) {
            let map = map(&nodes);
            let count = u32::try_from(nodes.len()).unwrap();
            prop_assert_eq!(NodeMap::parse(&map.to_string(), count), Some(map.clone()));
            let by_node = map.clone().by_node();
            let read: Vec<u32> = (0..count).filter_map(|rank| map.node_of(rank)).collect();
            prop_assert_eq!(&read, &nodes);
            for node in 0..6 {
                let of_node = (0..count).filter(|rank| nodes[*rank as usize] == node);
                prop_assert!(map.ranks_of(node).eq(of_node.clone()));
                prop_assert!(by_node.ranks_of(node).eq(of_node));
            }
            prop_assert!(by_node.ranks_of(u32::MAX).next().is_none());
        }
    }
}
