// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes that programs attach to communicators and datatypes (MPI 5.0 section 7.7).
//!
//! A key exists until it is freed *and* no attribute uses it any more; until then it may be used, even freed again. The
//! attributes of an object are stored and copied in the order in which they were set, and deleted in reverse order.
//!
//! Functions of the program are called outside of [visits of the state](crate::state) and without the lock, so they may
//! call MPI. They may even use the attribute that is being deleted: it exists until its delete function has returned.
//!
//! # Safety
//! `KeyvalFunctions::copy` and `KeyvalFunctions::delete` call functions of the program. Their obligation **K1**: the
//! function was passed to `MPI_Xxx_create_keyval`, by whose contract it may be called with a handle of that kind, the
//! key, the program's pointers, and for copies the addresses of a pointer and an int.
#![allow(unsafe_code, reason = "calls the program's attribute functions")]

use core::ffi::{c_int, c_void};
use std::collections::HashMap;

use runtime::{Universe, Visit};

use crate::args::{ExtraState, InOutArg, OutArg};
use crate::c;
use crate::callback::{
    MPI_Comm_copy_attr_function, MPI_Comm_delete_attr_function, MPI_Type_copy_attr_function,
    MPI_Type_delete_attr_function,
};
use crate::comm::int;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::error_added::last_used_code;
use crate::handle::{Handle, HandleKind, MPI_Comm, MPI_Datatype};
use crate::lock;

/// `MPI_Comm_create_keyval`, `MPI_Keyval_create`.
pub fn comm_create_keyval(
    mpi: Mpi,
    copy: Option<MPI_Comm_copy_attr_function>,
    delete: Option<MPI_Comm_delete_attr_function>,
    keyval: OutArg<'_, c_int>,
    extra_state: ExtraState,
) -> Result<()> {
    keyval.set(create(
        mpi,
        KeyvalFunctions::Comm { copy, delete },
        extra_state,
    )?);
    Ok(())
}

/// `MPI_Type_create_keyval`.
pub fn type_create_keyval(
    mpi: Mpi,
    copy: Option<MPI_Type_copy_attr_function>,
    delete: Option<MPI_Type_delete_attr_function>,
    keyval: OutArg<'_, c_int>,
    extra_state: ExtraState,
) -> Result<()> {
    keyval.set(create(
        mpi,
        KeyvalFunctions::Type { copy, delete },
        extra_state,
    )?);
    Ok(())
}

/// `MPI_Comm_free_keyval`, `MPI_Keyval_free`.
pub fn comm_free_keyval(mpi: Mpi, keyval: InOutArg<'_, c_int>) -> Result<()> {
    free(mpi, HandleKind::Comm, &keyval)
}

/// `MPI_Type_free_keyval`.
pub fn type_free_keyval(mpi: Mpi, keyval: InOutArg<'_, c_int>) -> Result<()> {
    free(mpi, HandleKind::Datatype, &keyval)
}

/// `MPI_Comm_set_attr`, `MPI_Attr_put`.
pub fn comm_set_attr(mpi: Mpi, comm: MPI_Comm, keyval: c_int, value: ExtraState) -> Result<()> {
    mpi.state(|state| state.comm(comm).map(drop))?;
    set(mpi, comm, keyval, value)
}

/// `MPI_Type_set_attr`.
pub fn type_set_attr(
    mpi: Mpi,
    datatype: MPI_Datatype,
    keyval: c_int,
    value: ExtraState,
) -> Result<()> {
    mpi.state(|state| state.datatype(datatype).map(drop))?;
    set(mpi, datatype, keyval, value)
}

/// `MPI_Comm_get_attr`, `MPI_Attr_get`: the value of a predefined attribute (MPI 5.0 section 9.1.2) is the address of
/// an integer.
pub fn comm_get_attr(
    mpi: Mpi,
    comm: MPI_Comm,
    keyval: c_int,
    value: OutArg<'_, ExtraState>,
    flag: OutArg<'_, c_int>,
) -> Result<()> {
    mpi.state(|state| state.comm(comm).map(drop))?;
    let Some(number) = predefined(mpi, keyval) else {
        return get(mpi, comm, keyval, &value, &flag);
    };
    // The program may keep the pointer, so the integer of each predefined key is allocated once and never freed.
    value.set(ExtraState(
        mpi.state(|state| state.attributes.place(keyval, number)),
    ));
    flag.set(1);
    Ok(())
}

/// `MPI_Type_get_attr`.
pub fn type_get_attr(
    mpi: Mpi,
    datatype: MPI_Datatype,
    keyval: c_int,
    value: OutArg<'_, ExtraState>,
    flag: OutArg<'_, c_int>,
) -> Result<()> {
    mpi.state(|state| state.datatype(datatype).map(drop))?;
    get(mpi, datatype, keyval, &value, &flag)
}

/// `MPI_Comm_delete_attr`, `MPI_Attr_delete`.
pub fn comm_delete_attr(mpi: Mpi, comm: MPI_Comm, keyval: c_int) -> Result<()> {
    mpi.state(|state| state.comm(comm).map(drop))?;
    delete(mpi, comm, keyval)
}

/// `MPI_Type_delete_attr`.
pub fn type_delete_attr(mpi: Mpi, datatype: MPI_Datatype, keyval: c_int) -> Result<()> {
    mpi.state(|state| state.datatype(datatype).map(drop))?;
    delete(mpi, datatype, keyval)
}

/// Copies the attributes of an object to a new object, as their copy functions decide. After an error the new object
/// has no attributes.
pub fn copy_all<H: Handle>(mpi: Mpi, from: H, to: H) -> Result<()> {
    for attribute in mpi.state(|state| state.attributes.all(from.bits())) {
        match attribute.copy(from.bits()) {
            Ok(None) => {}
            Ok(Some(value)) => {
                let copied = Attribute { value, ..attribute };
                mpi.state(|state| state.attributes.put(to.bits(), copied));
            }
            Err(error) => {
                drop_all(mpi, to);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Deletes the attributes of an object, the one that was set last first. If a delete function fails, its attribute and
/// those set before it remain.
pub fn delete_all<H: Handle>(mpi: Mpi, object: H) -> Result<()> {
    while let Some(last) = mpi.state(|state| state.attributes.last(object.bits())) {
        last.delete(object.bits())?;
        mpi.state(|state| state.attributes.remove(object.bits(), &last.keyval));
    }
    Ok(())
}

/// Deletes all attributes of an object, even if delete functions fail; returns the first error.
pub fn drop_all<H: Handle>(mpi: Mpi, object: H) -> Option<Error> {
    let mut first = None;
    while let Err(error) = delete_all(mpi, object) {
        mpi.state(|state| {
            if let Some(last) = state.attributes.last(object.bits()) {
                state.attributes.remove(object.bits(), &last.keyval);
            }
        });
        first.get_or_insert(error);
    }
    first
}

/// All keys, by number, and all attributes, by the value of their object's handle.
#[derive(Default)]
pub struct Attributes {
    keyvals: HashMap<c_int, Keyval>,
    made: c_int,
    objects: HashMap<usize, Vec<Attribute>>,
    /// Values of predefined attributes, which the program reads through pointers.
    places: HashMap<c_int, Box<c_int>>,
}

impl Attributes {
    fn keyval(&self, kind: HandleKind, number: c_int) -> Result<Keyval> {
        match self.keyvals.get(&number) {
            Some(keyval) if keyval.functions.kind() == kind => Ok(*keyval),
            Some(keyval) => Err(bad_keyval(format!(
                "the attribute key {number} is one for {}s, expected one for {}s",
                keyval.functions.kind().noun(),
                kind.noun()
            ))),
            None => Err(bad_keyval(unknown(number))),
        }
    }

    fn all(&self, object: usize) -> Vec<Attribute> {
        self.objects.get(&object).cloned().unwrap_or_default()
    }

    fn last(&self, object: usize) -> Option<Attribute> {
        self.objects.get(&object)?.last().copied()
    }

    fn find(&self, object: usize, keyval: &Keyval) -> Option<Attribute> {
        let all = self.objects.get(&object)?;
        all.iter().find(|one| one.is_of(keyval)).copied()
    }

    fn put(&mut self, object: usize, attribute: Attribute) {
        let all = self.objects.entry(object).or_default();
        all.retain(|one| !one.is_of(&attribute.keyval));
        all.push(attribute);
    }

    fn remove(&mut self, object: usize, keyval: &Keyval) {
        if let Some(all) = self.objects.get_mut(&object) {
            all.retain(|one| !one.is_of(keyval));
            if all.is_empty() {
                self.objects.remove(&object);
            }
        }
        self.forget_unused(keyval.number);
    }

    /// Removes a key that is freed, if no attribute uses it any more.
    fn forget_unused(&mut self, number: c_int) {
        let freed = self.keyvals.get(&number).is_some_and(|key| key.freed);
        let used = |one: &Attribute| one.keyval.number == number;
        if freed && !self.objects.values().flatten().any(used) {
            self.keyvals.remove(&number);
        }
    }

    fn free(&mut self, kind: HandleKind, number: c_int) -> Result<()> {
        let keyval = self.keyval(kind, number)?;
        let freed = true;
        self.keyvals.insert(number, Keyval { freed, ..keyval });
        self.forget_unused(number);
        Ok(())
    }

    fn place(&mut self, keyval: c_int, value: c_int) -> *mut c_void {
        let place = self.places.entry(keyval).or_default();
        **place = value;
        core::ptr::from_mut(&mut **place).cast()
    }
}

/// A key.
#[derive(Clone, Copy)]
struct Keyval {
    number: c_int,
    functions: KeyvalFunctions,
    extra_state: *mut c_void,
    freed: bool,
}

/// An attribute of an object.
#[derive(Clone, Copy)]
struct Attribute {
    keyval: Keyval,
    value: *mut c_void,
}

impl Attribute {
    fn is_of(&self, keyval: &Keyval) -> bool {
        self.keyval.number == keyval.number
    }

    /// Calls the key's copy function; `None` if the attribute is not copied.
    fn copy(&self, object: usize) -> Result<Option<*mut c_void>> {
        let key = &self.keyval;
        let mut copied = self.value;
        let mut flag = 0;
        let code = key
            .functions
            .copy(object, key, self.value, &mut copied, &mut flag);
        check(code, "copy", key.number)?;
        Ok((flag != 0).then_some(copied))
    }

    fn delete(&self, object: usize) -> Result<()> {
        let key = &self.keyval;
        let code = key.functions.delete(object, key, self.value);
        check(code, "delete", key.number)
    }
}

/// The callbacks of a key. The predefined `MPI_COMM_DUP_FN` and similar are small numbers, not function addresses.
#[derive(Clone, Copy)]
enum KeyvalFunctions {
    Comm {
        copy: Option<MPI_Comm_copy_attr_function>,
        delete: Option<MPI_Comm_delete_attr_function>,
    },
    Type {
        copy: Option<MPI_Type_copy_attr_function>,
        delete: Option<MPI_Type_delete_attr_function>,
    },
}

impl KeyvalFunctions {
    fn kind(self) -> HandleKind {
        match self {
            Self::Comm { .. } => HandleKind::Comm,
            Self::Type { .. } => HandleKind::Datatype,
        }
    }

    /// Address of the copy function; `None` for `MPI_XXX_NULL_COPY_FN`.
    fn copy_address(self) -> Option<usize> {
        match self {
            Self::Comm { copy, .. } => copy.map(|function| function as usize),
            Self::Type { copy, .. } => copy.map(|function| function as usize),
        }
    }

    fn copy(
        self,
        object: usize,
        key: &Keyval,
        value: *mut c_void,
        copied: &mut *mut c_void,
        flag: &mut c_int,
    ) -> c_int {
        if self.copy_address() == Some(DUP_FN) {
            *flag = 1;
            return c::MPI_SUCCESS;
        }
        let (number, state) = (key.number, key.extra_state);
        let (out, flag) = (
            core::ptr::from_mut(copied).cast(),
            core::ptr::from_mut(flag),
        );
        match self {
            Self::Comm { copy, .. } => copy.map_or(c::MPI_SUCCESS, |copy| {
                // SAFETY: K1; `out` and `flag` are the caller's and outlive the call.
                lock::without(|| unsafe { copy(MPI_Comm(object), number, state, value, out, flag) })
            }),
            Self::Type { copy, .. } => copy.map_or(c::MPI_SUCCESS, |copy| {
                // SAFETY: K1; `out` and `flag` are the caller's and outlive the call.
                lock::without(|| unsafe {
                    copy(MPI_Datatype(object), number, state, value, out, flag)
                })
            }),
        }
    }

    fn delete(self, object: usize, key: &Keyval, value: *mut c_void) -> c_int {
        let (number, state) = (key.number, key.extra_state);
        match self {
            Self::Comm { delete, .. } => delete.map_or(c::MPI_SUCCESS, |delete| {
                // SAFETY: K1.
                lock::without(|| unsafe { delete(MPI_Comm(object), number, value, state) })
            }),
            Self::Type { delete, .. } => delete.map_or(c::MPI_SUCCESS, |delete| {
                // SAFETY: K1.
                lock::without(|| unsafe { delete(MPI_Datatype(object), number, value, state) })
            }),
        }
    }
}

fn create(mpi: Mpi, functions: KeyvalFunctions, extra_state: ExtraState) -> Result<c_int> {
    mpi.state(|state| {
        let attributes = &mut state.attributes;
        let number = FIRST_KEYVAL.checked_add(attributes.made);
        let number = number.ok_or_else(|| {
            Error::new(ErrorClass::OTHER, "the program used up all attribute keys")
        })?;
        attributes.made += 1;
        let keyval = Keyval {
            number,
            functions,
            extra_state: extra_state.0,
            freed: false,
        };
        attributes.keyvals.insert(number, keyval);
        Ok(number)
    })
}

fn free(mpi: Mpi, kind: HandleKind, keyval: &InOutArg<'_, c_int>) -> Result<()> {
    mpi.state(|state| state.attributes.free(kind, keyval.get()))?;
    keyval.set(c::MPI_KEYVAL_INVALID);
    Ok(())
}

fn set<H: Handle>(mpi: Mpi, object: H, number: c_int, value: ExtraState) -> Result<()> {
    let keyval = mpi.state(|state| state.attributes.keyval(H::KIND, number))?;
    let old = mpi.state(|state| state.attributes.find(object.bits(), &keyval));
    if let Some(old) = old {
        old.delete(object.bits())?;
    }
    let value = value.0;
    mpi.state(|state| {
        let attribute = Attribute { keyval, value };
        state.attributes.put(object.bits(), attribute);
    });
    Ok(())
}

fn get<H: Handle>(
    mpi: Mpi,
    object: H,
    number: c_int,
    value: &OutArg<'_, ExtraState>,
    flag: &OutArg<'_, c_int>,
) -> Result<()> {
    let found = mpi.state(|state| {
        let keyval = state.attributes.keyval(H::KIND, number)?;
        Ok::<_, Error>(state.attributes.find(object.bits(), &keyval))
    })?;
    flag.set(c_int::from(found.is_some()));
    if let Some(found) = found {
        value.set(ExtraState(found.value));
    }
    Ok(())
}

fn delete<H: Handle>(mpi: Mpi, object: H, number: c_int) -> Result<()> {
    let keyval = mpi.state(|state| state.attributes.keyval(H::KIND, number))?;
    let found = mpi.state(|state| state.attributes.find(object.bits(), &keyval));
    let Some(found) = found else {
        let what = H::KIND.noun();
        let detail = format!("the {what} has no attribute with the key {number}");
        return Err(bad_keyval(detail));
    };
    found.delete(object.bits())?;
    mpi.state(|state| state.attributes.remove(object.bits(), &keyval));
    Ok(())
}

/// The value of a predefined attribute.
fn predefined(mpi: Mpi, keyval: c_int) -> Option<c_int> {
    match keyval {
        c::MPI_TAG_UB => Some(c_int::MAX),
        c::MPI_IO => Some(c::MPI_ANY_SOURCE),
        c::MPI_HOST => Some(c::MPI_PROC_NULL),
        // Only the ranks of one node share a clock.
        c::MPI_WTIME_IS_GLOBAL => {
            let is_one = |universe: &mut Universe| universe.is_on_one_node(&universe.comms.world());
            Some(c_int::from(mpi.visit(is_one)))
        }
        c::MPI_LASTUSEDCODE => Some(last_used_code()),
        c::MPI_UNIVERSE_SIZE => Some(int(mpi.visit(|universe| universe.size()))),
        c::MPI_APPNUM => Some(int(mpi.visit(|universe| universe.app()))),
        _ => None,
    }
}

fn check(code: c_int, which: &str, number: c_int) -> Result<()> {
    if code == c::MPI_SUCCESS {
        return Ok(());
    }
    // If the callback returned a known class or code, the MPI call returns it too.
    let class = match ErrorClass(code).is_known() {
        true => ErrorClass(code),
        false => ErrorClass::OTHER,
    };
    let detail = format!("the {which} function of the attribute key {number} returned {code}");
    Err(Error::new(class, detail))
}

fn unknown(number: c_int) -> String {
    match number {
        c::MPI_KEYVAL_INVALID => "the attribute key is MPI_KEYVAL_INVALID".to_owned(),
        FIRST_KEYVAL.. => format!("{number} is an attribute key that was freed, or never made"),
        PREDEFINED_FROM..FIRST_KEYVAL => {
            format!("the attribute key {number} is predefined, one of the program's own is needed")
        }
        _ => format!("{number} is not an attribute key"),
    }
}

#[cold]
fn bad_keyval(detail: String) -> Error {
    Error::new(ErrorClass::KEYVAL, detail)
}

/// The number of `MPI_COMM_DUP_FN` and of the other predefined copy functions that duplicate.
const DUP_FN: usize = 1;
/// Predefined keys are at least this number and below the program's first key.
const PREDEFINED_FROM: c_int = 501;
/// The program's first key.
const FIRST_KEYVAL: c_int = 1 << 16;
