// SPDX-License-Identifier: MIT OR Apache-2.0
//! The message to the user about two processes that have no network in common. Each record lists the networks that a
//! process has, but not why it lacks others.

use super::record::RecordPart;

/// The message if this process has only `ours` and the peer only `theirs`. `why`: why this process lacks the peer's
/// network, if it is allowed to use it.
pub(super) fn describe(ours: RecordPart, theirs: RecordPart, why: Option<&str>) -> String {
    let (ours, theirs) = (name(ours), name(theirs));
    let why = why.map(|why| format!(", since {why}")).unwrap_or_default();
    format!(
        "no network leads to it: it has {theirs} alone, and this process {ours} alone{why}; let both use the same by RMPI_PROVIDERS; \
         rmpi-info on each host shows what there is, and why the rest is not used"
    )
}

fn name(part: RecordPart) -> &'static str {
    match part {
        RecordPart::Verbs => "InfiniBand or RoCE (verbs)",
        RecordPart::Tcp => "tcp",
        RecordPart::Roce => "RoCE over UDP (roce)",
        RecordPart::Dpdk => "RoCE over DPDK (dpdk)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_common_network_error_states_both_networks_and_the_remedy() {
        let rest = "; let both use the same by RMPI_PROVIDERS; rmpi-info on each host shows what there is, and why the rest is not used";
        assert_eq!(
            describe(RecordPart::Tcp, RecordPart::Verbs, None),
            format!(
                "no network leads to it: it has InfiniBand or RoCE (verbs) alone, and this process tcp alone{rest}"
            )
        );
        assert_eq!(
            describe(RecordPart::Verbs, RecordPart::Tcp, Some("it has no key")),
            format!(
                "no network leads to it: it has tcp alone, and this process InfiniBand or RoCE (verbs) alone, since it has no key{rest}"
            )
        );
    }
}
