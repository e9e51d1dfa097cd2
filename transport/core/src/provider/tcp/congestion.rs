// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice of the congestion control algorithm. The hosts of a job are near each other, and its messages come in bursts
//! with pauses between them. BBR measures rates, and takes the pauses for low bandwidth: after small messages it may
//! send large ones at a tenth of what the network carries. Cubic and Reno react to losses only, so pauses do not slow
//! them down.

/// The congestion control algorithm that the user selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpCongestion {
    /// The system's default, except that BBR is replaced by Cubic, or by Reno if Cubic is not available.
    #[default]
    Auto,
    /// The system's default.
    System,
    /// The algorithm of this name.
    Named(&'static str),
}

impl TcpCongestion {
    /// Algorithms to try in turn if the system's default is `system`; empty: the default stays.
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
    fn only_bbr_is_replaced_and_only_by_the_auto_setting() {
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
