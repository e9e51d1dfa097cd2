// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 chapter 10: info objects, ordered lists of keys and values. All functions may be called at any time.

use core::ffi::{CStr, c_int};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs};

use crate::args::{InOutArg, OutArg, OutChars, OutString, Strings};
use crate::c::{MPI_MAX_INFO_KEY, MPI_MAX_INFO_VAL};
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{HandleKind, MPI_Info};
use crate::process;
use crate::registry::{HandleRegistry, not_a};

/// Keys with their values, in the order in which they were first set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InfoPairs(Vec<(CString, CString)>);

impl InfoPairs {
    /// The value of `key`.
    pub fn get(&self, key: &CStr) -> Option<&CStr> {
        self.0
            .iter()
            .find(|(name, _)| name.as_c_str() == key)
            .map(|(_, value)| value.as_c_str())
    }

    /// Sets `key`; an existing key keeps its position.
    pub fn set(&mut self, key: &CStr, value: &CStr) {
        match self.0.iter_mut().find(|(name, _)| name.as_c_str() == key) {
            Some((_, old)) => *old = value.to_owned(),
            None => self.0.push((key.to_owned(), value.to_owned())),
        }
    }

    /// Removes `key`; returns whether it existed.
    pub fn remove(&mut self, key: &CStr) -> bool {
        let before = self.0.len();
        self.0.retain(|(name, _)| name.as_c_str() != key);
        self.0.len() < before
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key at `index`.
    pub fn key(&self, index: usize) -> Option<&CStr> {
        self.0.get(index).map(|(key, _)| key.as_c_str())
    }

    /// Sets a key of the library, unless the value is empty or contains a NUL.
    fn set_known(&mut self, key: &CStr, value: &OsStr) {
        if let Ok(value) = CString::new(value.as_bytes())
            && !value.is_empty()
        {
            self.set(key, &value);
        }
    }
}

static INFOS: Mutex<HandleRegistry<MPI_Info, InfoPairs>> = Mutex::new(HandleRegistry::new());

fn infos() -> MutexGuard<'static, HandleRegistry<MPI_Info, InfoPairs>> {
    INFOS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new info object with these pairs.
pub fn insert(pairs: InfoPairs) -> Result<MPI_Info> {
    infos().insert(pairs)
}

/// A copy of the pairs of the info argument of a call; empty for `MPI_INFO_NULL`.
pub fn hints(info: MPI_Info) -> Result<InfoPairs> {
    if info == MPI_INFO_NULL {
        Ok(InfoPairs::default())
    } else {
        read(info, InfoPairs::clone)
    }
}

const MPI_INFO_NULL: MPI_Info = MPI_Info::NULL;

/// Calls `inspect` with the pairs of an info object.
fn read<T>(info: MPI_Info, inspect: impl FnOnce(&InfoPairs) -> T) -> Result<T> {
    if info == MPI_Info::ENV {
        return Ok(inspect(&environment(&arguments())));
    }
    infos().get(info).map(inspect)
}

/// Calls `action` with the pairs of an info object, to change them; an error for `MPI_INFO_ENV`.
fn change<T>(info: MPI_Info, action: impl FnOnce(&mut InfoPairs) -> T) -> Result<T> {
    if info == MPI_Info::ENV {
        return Err(Error::new(
            ErrorClass::INFO,
            "MPI_INFO_ENV cannot be changed; a copy can: MPI_Info_dup",
        ));
    }
    infos().get_mut(info).map(action)
}

/// `MPI_Info_create`.
pub fn info_create(info: OutArg<'_, MPI_Info>) -> Result<()> {
    info.set(insert(InfoPairs::default())?);
    Ok(())
}

/// `MPI_Info_create_env`: the contents of `MPI_INFO_ENV` for the given arguments.
pub fn info_create_env(argc: c_int, argv: Strings<'_>, info: OutArg<'_, MPI_Info>) -> Result<()> {
    let count = usize::try_from(argc).unwrap_or(0);
    let given = if count == 0 {
        arguments()
    } else {
        argv.read(Some(count))?
    };
    info.set(insert(environment(&given))?);
    Ok(())
}

/// `MPI_Info_dup`.
pub fn info_dup(info: MPI_Info, newinfo: OutArg<'_, MPI_Info>) -> Result<()> {
    let pairs = read(info, InfoPairs::clone)?;
    newinfo.set(insert(pairs)?);
    Ok(())
}

/// `MPI_Info_free`.
pub fn info_free(info: InOutArg<'_, MPI_Info>) -> Result<()> {
    if info.get() == MPI_Info::ENV {
        return Err(not_a(HandleKind::Info, MPI_Info::ENV.0));
    }
    infos().remove(info.get())?;
    info.set(MPI_Info::NULL);
    Ok(())
}

/// `MPI_Info_set`.
pub fn info_set(info: MPI_Info, key: &CStr, value: &CStr) -> Result<()> {
    check_key(key)?;
    let bytes = value.count_bytes();
    if bytes >= MPI_MAX_INFO_VAL {
        let most = MPI_MAX_INFO_VAL - 1;
        return Err(Error::new(
            ErrorClass::INFO_VALUE,
            format!(
                "the value of the key {key:?} has {bytes} characters, at most {most} are allowed"
            ),
        ));
    }
    change(info, |pairs| pairs.set(key, value))
}

/// `MPI_Info_delete`.
pub fn info_delete(info: MPI_Info, key: &CStr) -> Result<()> {
    check_key(key)?;
    if change(info, |pairs| pairs.remove(key))? {
        return Ok(());
    }
    Err(Error::new(
        ErrorClass::INFO_NOKEY,
        format!("the info object has no key {key:?}"),
    ))
}

/// `MPI_Info_get`: `value` has room for `valuelen` characters and a NUL.
pub fn info_get(
    info: MPI_Info,
    key: &CStr,
    valuelen: c_int,
    value: OutChars<'_>,
    flag: OutArg<'_, c_int>,
) -> Result<()> {
    check_key(key)?;
    let found = read(info, |pairs| pairs.get(key).map(CStr::to_owned))?;
    let room = usize::try_from(valuelen).map_err(|_| {
        Error::new(
            ErrorClass::ARG,
            format!("valuelen is {valuelen}, it must not be negative"),
        )
    })?;
    if let Some(found) = &found {
        value.within(room + 1).set_bytes(found.to_bytes());
    }
    flag.set(c_int::from(found.is_some()));
    Ok(())
}

/// `MPI_Info_get_valuelen`.
pub fn info_get_valuelen(
    info: MPI_Info,
    key: &CStr,
    valuelen: OutArg<'_, c_int>,
    flag: OutArg<'_, c_int>,
) -> Result<()> {
    check_key(key)?;
    let found = read(info, |pairs| pairs.get(key).map(CStr::count_bytes))?;
    if let Some(bytes) = found {
        valuelen.set(c_length(bytes));
    }
    flag.set(c_int::from(found.is_some()));
    Ok(())
}

/// `MPI_Info_get_string`: `buflen` is the size of `value`, including the NUL, and becomes the required size.
pub fn info_get_string(
    info: MPI_Info,
    key: &CStr,
    buflen: InOutArg<'_, c_int>,
    value: Option<OutChars<'_>>,
    flag: OutArg<'_, c_int>,
) -> Result<()> {
    check_key(key)?;
    let found = read(info, |pairs| pairs.get(key).map(CStr::to_owned))?;
    flag.set(c_int::from(found.is_some()));
    let Some(found) = found else { return Ok(()) };
    let room = usize::try_from(buflen.get()).unwrap_or(0);
    buflen.set(c_length(found.count_bytes() + 1));
    match value {
        _ if room == 0 => Ok(()),
        Some(value) => {
            value.within(room).set_bytes(found.to_bytes());
            Ok(())
        }
        None => Err(Error::null("value")),
    }
}

/// `MPI_Info_get_nkeys`.
pub fn info_get_nkeys(info: MPI_Info, nkeys: OutArg<'_, c_int>) -> Result<()> {
    nkeys.set(c_length(read(info, InfoPairs::len)?));
    Ok(())
}

/// `MPI_Info_get_nthkey`.
pub fn info_get_nthkey(info: MPI_Info, n: c_int, key: OutString<'_>) -> Result<()> {
    let index = usize::try_from(n).unwrap_or(usize::MAX);
    let (found, keys) = read(info, |pairs| {
        (pairs.key(index).map(CStr::to_owned), pairs.len())
    })?;
    let Some(found) = found else {
        return Err(Error::new(
            ErrorClass::ARG,
            format!("key number {n} was requested, the info object has {keys}, counted from 0"),
        ));
    };
    key.set_bytes(found.to_bytes());
    Ok(())
}

fn check_key(key: &CStr) -> Result<()> {
    let bytes = key.count_bytes();
    let most = MPI_MAX_INFO_KEY - 1;
    if (1..=most).contains(&bytes) {
        return Ok(());
    }
    Err(Error::new(
        ErrorClass::INFO_KEY,
        format!("the key has {bytes} characters, 1 to {most} are allowed"),
    ))
}

/// A length or a number of keys as a C int; the largest int if it does not fit.
fn c_length(length: usize) -> c_int {
    c_int::try_from(length).unwrap_or(c_int::MAX)
}

/// The contents of `MPI_INFO_ENV` (MPI 5.0 section 11.2.1): the keys whose values the library can find out.
fn environment(argv: &[CString]) -> InfoPairs {
    let mut pairs = InfoPairs::default();
    let mut arguments_left = argv.iter().map(|word| word.to_bytes());
    pairs.set_known(
        c"command",
        OsStr::from_bytes(arguments_left.next().unwrap_or_default()),
    );
    pairs.set_known(
        c"argv",
        OsStr::from_bytes(&arguments_left.collect::<Vec<_>>().join(&b' ')),
    );
    // Before MPI_Init, the size comes from the launcher's environment.
    let size =
        process::world_size().unwrap_or_else(|| runtime::LaunchState::expected_size() as usize);
    pairs.set_known(c"maxprocs", OsStr::new(&size.to_string()));
    pairs.set_known(c"host", OsStr::new(&process::host()));
    pairs.set_known(c"arch", OsStr::new(env::consts::ARCH));
    if let Ok(folder) = env::current_dir() {
        pairs.set_known(c"wdir", folder.as_os_str());
    }
    pairs
}

/// The command line of this process.
fn arguments() -> Vec<CString> {
    let line = fs::read("/proc/self/cmdline").unwrap_or_default();
    line.split_inclusive(|byte| *byte == 0)
        .filter_map(|word| CString::from_vec_with_nul(word.to_vec()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(pairs: &[(&CStr, &CStr)]) -> MPI_Info {
        let info = insert(InfoPairs::default()).unwrap();
        for (key, value) in pairs {
            info_set(info, key, value).unwrap();
        }
        info
    }

    #[test]
    fn info_keys_keep_their_order_when_a_value_is_replaced() {
        let info = make(&[(c"b", c"1"), (c"a", c"2"), (c"b", c"3")]);
        let pairs = hints(info).unwrap();
        assert_eq!(
            (pairs.len(), pairs.key(0), pairs.key(1)),
            (2, Some(c"b"), Some(c"a"))
        );
        assert_eq!(pairs.get(c"b"), Some(c"3"));
        info_delete(info, c"b").unwrap();
        assert_eq!(
            info_delete(info, c"b").unwrap_err().class(),
            ErrorClass::INFO_NOKEY
        );
    }

    #[test]
    fn invalid_info_keys_and_values_have_their_error_classes() {
        let info = make(&[]);
        let long = CString::new("k".repeat(MPI_MAX_INFO_KEY)).unwrap();
        assert_eq!(
            info_set(info, &long, c"v").unwrap_err().class(),
            ErrorClass::INFO_KEY
        );
        assert_eq!(
            info_set(info, c"", c"v").unwrap_err().class(),
            ErrorClass::INFO_KEY
        );
        let value = CString::new("v".repeat(MPI_MAX_INFO_VAL)).unwrap();
        let refused = info_set(info, c"k", &value).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::INFO_VALUE);
        assert!(
            refused.detail().contains("1024 characters, at most 1023"),
            "{refused}"
        );
    }

    #[test]
    fn info_null_has_no_hints_and_cannot_be_set() {
        assert!(hints(MPI_Info::NULL).unwrap().is_empty());
        let refused = info_set(MPI_Info::NULL, c"k", c"v").unwrap_err();
        assert_eq!(
            (refused.class(), refused.detail()),
            (ErrorClass::INFO, "MPI_INFO_NULL is not an info object")
        );
        assert!(info_set(MPI_Info::ENV, c"k", c"v").is_err());
    }

    #[test]
    fn info_env_has_command_host_arch_and_wdir() {
        let pairs = hints(MPI_Info::ENV).unwrap();
        for key in [c"command", c"host", c"arch", c"wdir"] {
            assert!(pairs.get(key).is_some(), "{key:?}");
        }
        let made = environment(&[c"prog".to_owned(), c"-x".to_owned(), c"1".to_owned()]);
        assert_eq!(
            (made.get(c"command"), made.get(c"argv")),
            (Some(c"prog"), Some(c"-x 1"))
        );
    }
}
