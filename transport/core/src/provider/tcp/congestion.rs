// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which algorithm controls the congestion of connections. The hosts of a job are near to each other, and its messages come in bursts
//! with pauses between them. BBR measures rates, and of such a stream it believes the pauses: after small messages it lets large ones go
//! at a tenth of what the network carries. Cubic and Reno, which wait for losses, do not.

/// The congestion control algorithm that the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpCongestion {
    /// What the system has, but for BBR: Cubic or else Reno in its place.
    #[default]
    Auto,
    /// What the system has.
    System,
    /// The algorithm of this name.
    Named(&'static str),
}

impl TcpCongestion {
    /// What to try, one after the other, where the system has this one; nothing: that stays.
    pub(super) fn candidates(self, system: &str) -> &'static [&'static str] {
        match self {
            Self::Auto if system.starts_with("bbr") => &["cubic", "reno"],
            Self::Auto | Self::System | Self::Named(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bbr_is_replaced_and_only_where_nobody_chooses() {
        let of = |wanted: TcpCongestion, system| wanted.candidates(system);
        assert_eq!(of(TcpCongestion::Auto, "bbr"), ["cubic", "reno"]);
        assert_eq!(of(TcpCongestion::Auto, "bbr2"), ["cubic", "reno"]);
        for system in ["cubic", "reno", "dctcp", ""] {
            assert!(of(TcpCongestion::Auto, system).is_empty());
        }
        assert!(of(TcpCongestion::System, "bbr").is_empty());
        assert!(of(TcpCongestion::Named("bbr"), "bbr").is_empty());
    }
}
