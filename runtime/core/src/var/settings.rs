// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of this process. Their values come from the environment, and from a tool that writes them before MPI is
//! initialized. `MPI_Init` determines the values that are in force from then on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ControlVariable, MAX_TEXT_BYTES, ROWS, Range, Scope, VariableValues, live};

/// The rows that are control variables of MPI_T, in the order of their indices. These are all rows except those for
/// other programs.
pub fn controls() -> impl Iterator<Item = &'static ControlVariable> {
    ROWS.iter().filter(|row| row.range != Range::Foreign)
}

/// The control variable with this index.
#[must_use]
pub fn control(index: usize) -> Option<&'static ControlVariable> {
    controls().nth(index)
}

/// The value of a control variable as tools read and write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CvarValue {
    /// A number, for [`Range::Number`].
    Number(u64),
    /// The index of a word, for [`Range::Words`].
    Word(usize),
    /// The text, for all other ranges.
    Text(String),
}

/// Why a control variable was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CvarRefusal {
    /// MPI is initialized, and this value can no longer change.
    NotNow,
    /// Only the environment sets the variable.
    Never,
    /// The value is not permitted for this variable.
    Invalid,
}

/// Size of the longest text of the variable, including its final NUL. `None`: its values are not texts.
#[must_use]
pub fn text_bytes(row: &ControlVariable) -> Option<usize> {
    match row.range {
        Range::Names { all, .. } => Some(all.iter().map(|name| name.len() + 1).sum()),
        Range::List(_) | Range::Text(_) => Some(MAX_TEXT_BYTES),
        _ => None,
    }
}

/// The values that a tool has written, and the values in force.
#[derive(Debug)]
struct CvarSettings {
    /// Index of the row, value and text of each write, in the order of the writes.
    written: Vec<(usize, u64, String)>,
    /// The values in force; `Some` once MPI is initialized.
    fixed: Option<VariableValues>,
}

static SETTINGS: Mutex<CvarSettings> = Mutex::new(CvarSettings::new());

fn settings() -> MutexGuard<'static, CvarSettings> {
    SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of a control variable. Before MPI is initialized: the value that it would have if MPI were initialized
/// now.
#[must_use]
pub fn read(row: &ControlVariable) -> CvarValue {
    settings().read(row, environment)
}

/// Writes a control variable.
///
/// # Errors
/// See [`CvarRefusal`].
pub fn write(row: &ControlVariable, value: &CvarValue) -> Result<(), CvarRefusal> {
    let mut settings = settings();
    settings.write(row, value)?;
    // The lock on the settings is still held. So if two threads write the same variable, its last value in the settings
    // is also its last value in `live`.
    if let (Scope::Any, Some((number, _))) = (row.scope, parsed(row, value)) {
        live::change(row.variable, number);
        live::set_stale(true);
    }
    Ok(())
}

/// To be called when MPI is initialized: determines the values in force. Returns them, and a warning for each invalid
/// variable.
#[must_use]
pub fn fix() -> (VariableValues, Vec<String>) {
    let fixed = settings().fix(environment());
    live::hold(&fixed.0);
    fixed
}

fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

impl CvarSettings {
    const fn new() -> Self {
        Self {
            written: Vec::new(),
            fixed: None,
        }
    }

    fn read(
        &self,
        row: &ControlVariable,
        environment: impl FnOnce() -> Vec<(String, String)>,
    ) -> CvarValue {
        match &self.fixed {
            Some(values) => value(values, row),
            None => value(&self.values(environment()).0, row),
        }
    }

    fn write(&mut self, row: &ControlVariable, value: &CvarValue) -> Result<(), CvarRefusal> {
        if row.scope == Scope::ReadOnly {
            return Err(CvarRefusal::Never);
        }
        let (number, text) = parsed(row, value).ok_or(CvarRefusal::Invalid)?;
        let at = row.variable as usize;
        match &mut self.fixed {
            None => {}
            Some(fixed) if row.scope == Scope::Any => {
                fixed.set(at, number, text);
                return Ok(());
            }
            Some(_) => return Err(CvarRefusal::NotNow),
        }
        self.written.retain(|(other, ..)| *other != at);
        self.written.push((at, number, text));
        Ok(())
    }

    fn fix(&mut self, environment: Vec<(String, String)>) -> (VariableValues, Vec<String>) {
        let (values, warnings) = self.values(environment);
        self.fixed = Some(values.clone());
        (values, warnings)
    }

    /// The values from `environment` and from the tool (those from the tool take precedence), and a warning for each
    /// invalid variable.
    fn values(&self, environment: Vec<(String, String)>) -> (VariableValues, Vec<String>) {
        let (mut values, warnings) = VariableValues::from_environment(environment.into_iter());
        for (at, number, text) in &self.written {
            values.set(*at, *number, text.clone());
        }
        (values, warnings)
    }
}

fn value(values: &VariableValues, row: &ControlVariable) -> CvarValue {
    let number = values.get(row.variable);
    match row.range {
        Range::Number { .. } => CvarValue::Number(number),
        Range::Words(_) => CvarValue::Word(usize::try_from(number).unwrap_or(0)),
        Range::Names { all, .. } => {
            let names = all.iter().enumerate();
            let there = names.filter(|(at, _)| number >> at & 1 != 0);
            CvarValue::Text(there.map(|(_, name)| *name).collect::<Vec<_>>().join(","))
        }
        Range::List(_) | Range::Text(_) | Range::Foreign => {
            CvarValue::Text(values.text(row.variable).to_owned())
        }
    }
}

/// A value as number and text; `None`: the row does not permit the value.
fn parsed(row: &ControlVariable, value: &CvarValue) -> Option<(u64, String)> {
    match (row.range, value) {
        (Range::Number { least, most, .. }, CvarValue::Number(number)) => (least..=most)
            .contains(number)
            .then(|| (*number, String::new())),
        (Range::Words(words), CvarValue::Word(at)) => {
            (*at < words.len()).then(|| (*at as u64, String::new()))
        }
        (Range::Names { .. } | Range::List(_) | Range::Text(_), CvarValue::Text(text)) => {
            Some((row.range.parse(text)?, text.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Variable;
    use super::*;

    fn row(variable: Variable) -> &'static ControlVariable {
        &ROWS[variable as usize]
    }

    fn set(name: &str, text: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), text.to_owned())]
    }

    #[test]
    fn launcher_settings_are_not_control_variables() {
        let count = controls().count();
        assert!(count >= 60, "{count}");
        assert_eq!(control(0).unwrap().name, "RMPI_EAGER_LIMIT");
        assert!(controls().all(|row| row.name != "RMPI_BOOT") && control(count).is_none());
    }

    #[test]
    fn a_written_cvar_overrides_the_environment_at_mpi_init() {
        let mut settings = CvarSettings::new();
        let limit = row(Variable::EagerLimit);
        let given = || set("RMPI_EAGER_LIMIT", "4K");
        assert_eq!(settings.read(limit, Vec::new), CvarValue::Number(8192));
        assert_eq!(settings.read(limit, given), CvarValue::Number(4096));
        settings.write(limit, &CvarValue::Number(17)).unwrap();
        settings.write(limit, &CvarValue::Number(16)).unwrap();
        assert_eq!(settings.read(limit, given), CvarValue::Number(16));
        let (values, warnings) = settings.fix(given());
        assert!(warnings.is_empty() && values.get(Variable::EagerLimit) == 16);
        let rails = row(Variable::NetRails);
        let refused = settings.write(rails, &CvarValue::Number(1));
        assert_eq!(refused, Err(CvarRefusal::NotNow));
        assert_eq!(settings.read(rails, Vec::new), CvarValue::Number(2));
        settings.write(limit, &CvarValue::Number(5)).unwrap();
        assert_eq!(settings.read(limit, given), CvarValue::Number(5));
    }

    #[test]
    fn some_settings_change_while_mpi_runs() {
        let mut settings = CvarSettings::new();
        let yields = row(Variable::Yields);
        settings.write(yields, &CvarValue::Number(3)).unwrap();
        let (values, _) = settings.fix(Vec::new());
        assert_eq!(values.get(Variable::Yields), 3);
        settings.write(yields, &CvarValue::Number(40)).unwrap();
        assert_eq!(settings.read(yields, Vec::new), CvarValue::Number(40));
        let refused = settings.write(yields, &CvarValue::Number(1 << 21));
        assert_eq!(refused, Err(CvarRefusal::Invalid));
        assert_eq!(settings.read(yields, Vec::new), CvarValue::Number(40));
    }

    #[test]
    fn writing_an_invalid_cvar_value_changes_nothing() {
        let mut settings = CvarSettings::new();
        for (variable, value) in [
            (Variable::EagerLimit, CvarValue::Number(8193)),
            (Variable::EagerLimit, CvarValue::Word(1)),
            (Variable::NetRails, CvarValue::Number(0)),
            (Variable::Wait, CvarValue::Word(3)),
            (Variable::Providers, CvarValue::Text("rdma".to_owned())),
            (Variable::Providers, CvarValue::Text(String::new())),
            (Variable::NetDevices, CvarValue::Text("a/b".to_owned())),
            (
                Variable::NetDevices,
                CvarValue::Text("a".repeat(MAX_TEXT_BYTES)),
            ),
        ] {
            let before = settings.read(row(variable), Vec::new);
            let refused = settings.write(row(variable), &value);
            assert_eq!(refused, Err(CvarRefusal::Invalid), "{value:?}");
            assert_eq!(settings.read(row(variable), Vec::new), before);
        }
        let timeout = row(Variable::QmpTimeout);
        let refused = settings.write(timeout, &CvarValue::Number(1));
        assert_eq!(refused, Err(CvarRefusal::Never));
    }

    #[test]
    fn list_cvars_are_read_as_texts_within_their_size() {
        let mut settings = CvarSettings::new();
        let (providers, devices) = (row(Variable::Providers), row(Variable::NetDevices));
        let all = settings.read(providers, Vec::new);
        assert_eq!(all, CvarValue::Text("self,shm,verbs,tcp".to_owned()));
        assert_eq!(
            text_bytes(providers),
            Some("self,shm,verbs,tcp,roce,dpdk".len() + 1)
        );
        let some = CvarValue::Text(" SHM,self,shm".to_owned());
        settings.write(providers, &some).unwrap();
        let read = settings.read(providers, Vec::new);
        assert_eq!(read, CvarValue::Text("self,shm".to_owned()));
        let long = CvarValue::Text("a,".repeat(511));
        settings.write(devices, &long).unwrap();
        assert_eq!(settings.read(devices, Vec::new), long);
        assert_eq!(text_bytes(devices), Some(MAX_TEXT_BYTES));
        assert_eq!(text_bytes(row(Variable::Wait)), None);
    }
}
