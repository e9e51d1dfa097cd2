// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the tree of shepherds: a shepherd starts at most [`FAN_OUT`] others, which start the remaining ones.

use serde::{Deserialize, Serialize};

/// Maximum number of shepherds that one shepherd starts, not counting those on hosts with relative names.
pub(crate) const FAN_OUT: usize = 32;

/// A host to be reached by a remote shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteHost {
    /// The host's node in the job.
    pub(crate) node: u32,
    /// The name by which the host that starts the shepherd reaches this host.
    pub(crate) name: String,
    /// User name, if the remote shell needs one.
    pub(crate) user: Option<String>,
    /// Port of the remote shell's server, if not the default.
    pub(crate) port: Option<u16>,
}

impl RemoteHost {
    /// A host of this name, without user and port.
    pub(crate) fn named(node: u32, name: impl Into<String>) -> Self {
        Self {
            node,
            name: name.into(),
            user: None,
            port: None,
        }
    }

    /// Whether the name is relative: it means a different machine on each host, as `localhost` does.
    pub(crate) fn is_relative(&self) -> bool {
        let name = self.name.as_str();
        name == "localhost" || name == "::1" || name.starts_with("127.")
    }
}

/// Moves hosts with relative names to the start of the list, since only the host that starts the job can reach them.
pub(crate) fn in_order(mut targets: Vec<RemoteHost>) -> Vec<RemoteHost> {
    targets.sort_by_key(|target| !target.is_relative());
    targets
}

/// Divides hosts among the children of this shepherd: the first host of each part is a child, which starts the rest of
/// its part. Hosts with relative names come first in `targets`, and each of them is a part of its own.
pub(crate) fn parts(targets: &[RemoteHost]) -> Vec<&[RemoteHost]> {
    let own = targets.iter().take_while(|target| target.is_relative());
    let (own, others) = targets.split_at(own.count());
    let count = others.len().min(FAN_OUT);
    let start = |part: usize| part * others.len() / count;
    let parts = (0..count).map(|part| &others[start(part)..start(part + 1)]);
    own.chunks(1).chain(parts).collect()
}

/// Position of a node in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreePosition<'a> {
    /// The host whose shepherd starts this one; `None`: the front's shepherd.
    pub(super) parent: Option<&'a RemoteHost>,
    /// The hosts below: those that this shepherd starts, directly or through other shepherds.
    pub(super) below: &'a [RemoteHost],
}

/// Finds the position of a node in the tree of these hosts.
pub(super) fn position_of(mut targets: &[RemoteHost], node: u32) -> Option<TreePosition<'_>> {
    let mut parent = None;
    loop {
        let has_it = |part: &&[RemoteHost]| part.iter().any(|target| target.node == node);
        let part = parts(targets).into_iter().find(has_it)?;
        let (first, below) = part.split_first()?;
        if first.node == node {
            return Some(TreePosition { parent, below });
        }
        (parent, targets) = (Some(first), below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(count: u32) -> Vec<RemoteHost> {
        let target = |node| RemoteHost::named(node, format!("n{node}"));
        (0..count).map(target).collect()
    }

    #[test]
    fn each_host_finds_its_parent_and_children() {
        fn check_positions<'a>(
            all: &'a [RemoteHost],
            parent: Option<&'a RemoteHost>,
            here: &'a [RemoteHost],
        ) -> usize {
            let each = parts(here).into_iter().map(|part| {
                let below = &part[1..];
                assert_eq!(
                    position_of(all, part[0].node),
                    Some(TreePosition { parent, below })
                );
                1 + check_positions(all, Some(&part[0]), below)
            });
            each.sum()
        }
        for count in [1, 2, 33, 1100] {
            let all = targets(count);
            assert_eq!(check_positions(&all, None, &all), count as usize);
            assert_eq!(position_of(&all, count), None);
        }
    }

    #[test]
    fn localhost_is_started_directly_by_the_front() {
        let mut all = targets(40);
        all[39].name = "localhost".into();
        let all = in_order(all);
        let parts = parts(&all);
        assert_eq!((parts.len(), parts[0].len(), parts[0][0].node), (33, 1, 39));
    }

    #[test]
    fn every_host_is_started_once_within_the_fan_out() {
        fn depth(targets: &[RemoteHost], seen: &mut Vec<u32>) -> u32 {
            let parts = parts(targets);
            assert!(parts.len() <= FAN_OUT);
            let below = parts.iter().map(|part| {
                seen.push(part[0].node);
                depth(&part[1..], seen)
            });
            below.max().map_or(0, |below| below + 1)
        }
        for (count, most) in [
            (0, 0),
            (1, 1),
            (32, 1),
            (33, 2),
            (1000, 2),
            (1056, 2),
            (2000, 3),
        ] {
            let mut seen = Vec::new();
            assert_eq!(depth(&targets(count), &mut seen), most, "{count}");
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }
}
