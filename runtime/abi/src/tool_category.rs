// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 section 15.3.9: categories. One category contains all others. The contents of categories never change.

use core::ffi::{CStr, c_int};

use runtime::var::Category;
use runtime::var::events::EVENTS;
use runtime::var::pvars::PVARS;
use runtime::var::settings::controls;

use crate::args::{InOutArg, OutArg, OutArray, OutChars};
use crate::error::ErrorClass;
use crate::tool::{Result, ToolError, at, number, put, put_text};

/// `MPI_T_category_get_num`.
pub fn get_num(num: OutArg<'_, c_int>) -> Result<()> {
    num.set(number(Category::SHOWN.len()));
    Ok(())
}

/// `MPI_T_category_get_info`.
pub fn get_info(
    index: c_int,
    name: Option<OutChars<'_>>,
    name_len: Option<InOutArg<'_, c_int>>,
    desc: Option<OutChars<'_>>,
    desc_len: Option<InOutArg<'_, c_int>>,
    num_cvars: Option<OutArg<'_, c_int>>,
    num_pvars: Option<OutArg<'_, c_int>>,
    num_categories: Option<OutArg<'_, c_int>>,
) -> Result<()> {
    let category = find(index)?;
    put_text(name, name_len, category.name());
    put_text(desc, desc_len, category.text());
    put(num_cvars, number(cvars(category).count()));
    put(num_pvars, number(pvars(category).count()));
    put(num_categories, number(category.below().count()));
    Ok(())
}

/// `MPI_T_category_get_index`.
pub fn get_index(name: &CStr, index: OutArg<'_, c_int>) -> Result<()> {
    let same = |category: &Category| category.name().as_bytes() == name.to_bytes();
    let found = Category::SHOWN.iter().position(same);
    index.set(number(found.ok_or(ToolError(ErrorClass::T_INVALID_NAME))?));
    Ok(())
}

/// `MPI_T_category_get_cvars`.
pub fn get_cvars(index: c_int, indices: OutArray<'_, c_int>) -> Result<()> {
    indices.fill(cvars(find(index)?).map(number));
    Ok(())
}

/// `MPI_T_category_get_pvars`.
pub fn get_pvars(index: c_int, indices: OutArray<'_, c_int>) -> Result<()> {
    indices.fill(pvars(find(index)?).map(number));
    Ok(())
}

/// `MPI_T_category_get_num_events`.
pub fn get_num_events(index: c_int, num_events: OutArg<'_, c_int>) -> Result<()> {
    num_events.set(number(events(find(index)?).count()));
    Ok(())
}

/// `MPI_T_category_get_events`.
pub fn get_events(index: c_int, indices: OutArray<'_, c_int>) -> Result<()> {
    indices.fill(events(find(index)?).map(number));
    Ok(())
}

/// `MPI_T_category_get_categories`.
pub fn get_categories(index: c_int, indices: OutArray<'_, c_int>) -> Result<()> {
    let below = find(index)?.below().filter_map(Category::place);
    indices.fill(below.map(number));
    Ok(())
}

/// `MPI_T_category_changed`: always 0, since categories never change.
pub fn changed(update_number: OutArg<'_, c_int>) -> Result<()> {
    update_number.set(0);
    Ok(())
}

fn find(index: c_int) -> Result<Category> {
    at(Category::SHOWN.into_iter(), index)
}

fn cvars(category: Category) -> impl Iterator<Item = usize> {
    let all = controls().enumerate();
    all.filter(move |(_, row)| row.category == category)
        .map(|(index, _)| index)
}

fn events(category: Category) -> impl Iterator<Item = usize> {
    let all = EVENTS.iter().enumerate();
    all.filter(move |(_, row)| row.category == category)
        .map(|(index, _)| index)
}

fn pvars(category: Category) -> impl Iterator<Item = usize> {
    let all = PVARS.iter().enumerate();
    all.filter(move |(_, pvar)| pvar.category == category)
        .map(|(index, _)| index)
}
