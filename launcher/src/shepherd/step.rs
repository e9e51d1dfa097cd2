// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job step: one command of a batch system that starts the shepherds of all hosts except the front's. This file has
//! the description of the step, which all its shepherds read from standard input, and parses errors of the command. It
//! makes no system calls.

use super::fan_out::{RemoteHost, TreePosition, position_of};
use super::protocol::{Greeting, JobStep, StepKey, decoded, find_greeting, greeting, put};
use crate::link::{Inbox, frame};
use remote_shell::word;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The hidden option that makes `rmpiexec` a shepherd of a step.
pub(crate) const OPTION: &str = "--shepherd-of-step";

const CALL: u8 = 220;

/// Description of a step, read by all its shepherds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StepDescription {
    /// Key of the handshake.
    pub(super) key: StepKey,
    /// The names of all hosts except the front's, as a packed list, in the order of their nodes.
    names: String,
    /// The node of the front's host; `None` if that host has no node.
    own: Option<u32>,
    /// Addresses of the front's shepherd.
    pub(super) root: Vec<IpAddr>,
    /// Port of the front's shepherd.
    pub(super) root_port: u16,
    /// Port range of all other shepherds.
    pub(super) ports: (u16, u16),
    /// Environment variable that holds the host's name as used in `names`; `None` if that is the host's own name.
    pub(super) variable: Option<String>,
}

/// Position of a shepherd in the step's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepPosition {
    pub(super) node: u32,
    /// The name of the host to whose shepherd this one connects; `None`: the front's shepherd.
    pub(super) parent: Option<String>,
    /// Whether other shepherds connect to this one.
    pub(super) has_below: bool,
}

impl StepDescription {
    /// The description of a step for the hosts `below`. Their nodes are numbered in order, skipping `own`.
    pub(super) fn new(
        step: &JobStep,
        (below, own): (&[RemoteHost], Option<u32>),
        (root, root_port): (Vec<IpAddr>, u16),
    ) -> Self {
        Self {
            key: step.key,
            variable: step.variable.clone(),
            names: word::packed(below.iter().map(|target| target.name.as_str())),
            own,
            root,
            root_port,
            ports: step.ports.unwrap_or((root_port, root_port)),
        }
    }

    /// Encodes the description.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = greeting();
        frame(&mut bytes, CALL, |body| put(self, body));
        bytes
    }

    /// Decodes the bytes read so far; `None` if more bytes are needed. The error is a message for the user.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Self>, String> {
        let malformed =
            || "what comes by standard input is not for a shepherd of a step".to_owned();
        let begin = match find_greeting(bytes) {
            Greeting::Right(end) => end,
            Greeting::NotYet => return Ok(None),
            Greeting::Other(release) => {
                return Err(format!(
                    "rmpi {release} calls, this is {}: install the same release on all hosts",
                    env!("CARGO_PKG_VERSION")
                ));
            }
            Greeting::TooMuch => return Err(malformed()),
        };
        let mut inbox = Inbox::default();
        inbox.add(&bytes[begin..]);
        match inbox.raw_frame() {
            Ok(None) => Ok(None),
            Ok(Some((CALL, body))) => decoded(body).map(Some).map_err(|_| malformed()),
            _ => Err(malformed()),
        }
    }

    /// The hosts of the step, with their nodes.
    fn targets(&self) -> impl Iterator<Item = RemoteHost> {
        let parsed = word::split(&self.names).into_iter();
        let parsed = parsed.filter_map(|(_, text)| word::read(text).ok());
        let nodes = (0..).filter(|node| Some(*node) != self.own);
        let named = nodes.zip(parsed.flat_map(|word| word.names));
        named.map(|(node, name)| RemoteHost::named(node, name))
    }

    /// The node of the host with this name.
    pub(super) fn node(&self, name: &str) -> Option<u32> {
        let found = self.targets().find(|target| target.name == name)?;
        Some(found.node)
    }

    /// The position of the host with this name.
    pub(super) fn position(&self, name: &str) -> Option<StepPosition> {
        let node = self.node(name)?;
        let all: Vec<RemoteHost> = self.targets().collect();
        let TreePosition { parent, below } = position_of(&all, node)?;
        Some(StepPosition {
            node,
            parent: parent.map(|parent| parent.name.clone()),
            has_below: !below.is_empty(),
        })
    }
}

/// The hosts whose shepherds have exited, parsed from a message of `srun`: `srun: error: n[2-3]: tasks 1-2: Exited
/// with exit code 1`.
pub(super) fn failed_hosts(text: &str) -> Vec<String> {
    let list = |line: &str| {
        let (list, rest) = line.strip_prefix("srun: error: ")?.split_once(": ")?;
        rest.starts_with("task").then(|| word::split(list))?;
        let parsed = word::split(list)
            .into_iter()
            .filter_map(|(_, text)| word::read(text).ok());
        Some(parsed.flat_map(|word| word.names).collect::<Vec<_>>())
    };
    text.lines().filter_map(list).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(names: &[&str], own: Option<u32>) -> StepDescription {
        let nodes = (0..).filter(|node| Some(*node) != own);
        let below: Vec<RemoteHost> = nodes
            .zip(names)
            .map(|(node, name)| RemoteHost::named(node, *name))
            .collect();
        let root = vec!["10.77.0.254".parse().unwrap(), "fe80::1".parse().unwrap()];
        let step = JobStep {
            key: StepKey(5),
            ports: Some((4000, 4015)),
            variable: None,
            command: Vec::new(),
        };
        StepDescription::new(&step, (&below, own), (root, 4000))
    }

    #[test]
    fn a_step_task_finds_its_position_by_host_name() {
        let sent = call(&["n1", "n3", "n4"], Some(1));
        let received = StepDescription::decode(&sent.encode()).unwrap().unwrap();
        assert_eq!(received, sent);
        let position = |name: &str| {
            received
                .position(name)
                .map(|position| (position.node, position.parent))
        };
        assert_eq!(position("n1"), Some((0, None)));
        assert_eq!(position("n3"), Some((2, None)), "1 is the front's own");
        assert_eq!(
            (position("n2"), received.node("n2"), received.node("n4")),
            (None, None, Some(3))
        );
        let names: Vec<String> = (0..100).map(|number| format!("n{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let many = call(&names, None);
        assert_eq!(many.names, "n[00-99]");
        let last = many.position("n99").unwrap();
        assert_eq!((last.node, last.has_below), (99, false));
        let parent = many.position(&last.parent.unwrap()).unwrap();
        assert!(parent.has_below && parent.parent.is_none());
    }

    #[test]
    fn a_step_of_another_release_is_refused() {
        let old = b"\0rmpi-shepherd 0.0.1/2\n";
        assert!(
            StepDescription::decode(old)
                .unwrap_err()
                .contains("0.0.1/2")
        );
        let whole = call(&["a"], None).encode();
        for end in 0..whole.len() {
            assert_eq!(StepDescription::decode(&whole[..end]), Ok(None));
        }
    }

    #[test]
    fn failed_hosts_are_parsed_from_srun_errors() {
        let text = "srun: warning: x\nrmpiexec: y\nsrun: error: n2: task 1: Exited with exit code 1\n\
            srun: error: n[3-4],m7: tasks 2-4: Killed\nsrun: error: Unable to create step: Invalid job\nsrun: error: Node failure on n9\n";
        assert_eq!(failed_hosts(text), ["n2", "n3", "n4", "m7"]);
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_step_bytes_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), is_greeted: bool) {
            if is_greeted {
                bytes = [greeting(), bytes].concat();
            }
            if let Ok(Some(call)) = StepDescription::decode(&bytes) {
                call.position("a");
            }
        }

        #[test]
        fn arbitrary_srun_output_never_panics(text in "(srun: error: )?[a-c0-3,\\[\\]-]{0,12}(: tasks? 1)?\\PC{0,9}") {
            failed_hosts(&text);
        }
    }
}
