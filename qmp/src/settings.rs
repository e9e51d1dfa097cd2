// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads QMP's environment variables. They are defined in the runtime's table of variables, which documents them and
//! reports wrong values.

/// The settings in the environment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QmpSettings {
    /// `RMPI_QMP_REPRODUCIBLE`: whether reductions combine values in the order of node numbers.
    pub reproducible: bool,
    /// `RMPI_QMP_TIMEOUT`: time limit of `QMP_wait` in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
}

impl QmpSettings {
    /// The settings without any variable.
    pub const DEFAULT: Self = Self {
        reproducible: false,
        timeout_s: None,
    };

    /// Reads the variables through `find`; a wrong value counts as not set.
    pub fn read(find: impl Fn(&str) -> Option<String>) -> Self {
        let timeout = find("RMPI_QMP_TIMEOUT").and_then(|text| text.trim().parse::<u32>().ok());
        Self {
            reproducible: find("RMPI_QMP_REPRODUCIBLE").is_some_and(|text| text.trim() == "on"),
            timeout_s: timeout.filter(|seconds| *seconds > 0).map(f64::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_and_invalid_settings_are_the_defaults() {
        assert_eq!(QmpSettings::read(|_| None), QmpSettings::DEFAULT);
        assert_eq!(
            QmpSettings::read(|_| Some("soon".into())),
            QmpSettings::DEFAULT
        );
        assert_eq!(
            QmpSettings::read(|_| Some("0".into())),
            QmpSettings::DEFAULT
        );
    }

    #[test]
    fn timeout_and_reproducible_settings_are_read() {
        let find = |name: &str| {
            Some(
                if name.ends_with("TIMEOUT") {
                    "600"
                } else {
                    "on"
                }
                .to_owned(),
            )
        };
        let wanted = QmpSettings {
            reproducible: true,
            timeout_s: Some(600.0),
        };
        assert_eq!(QmpSettings::read(find), wanted);
    }
}
