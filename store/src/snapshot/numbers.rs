//! Texts by number: for whoever compares texts and shows few of them.
//!
//! A store keeps each text that rows repeat (input ids, agents, parents) once and names it by a number. Within one snapshot
//! two numbers are equal where their texts are, whatever table they are of. So groups and joins can be made of numbers, and
//! texts be looked up for what is left.

use arrow_array::{ArrayRef, UInt32Array};

use super::TableSnapshot;
use super::text_array::repeated;
use crate::consumer::GroupBy;
use crate::schema::META_COLUMNS;
use crate::texts::TextId;

/// Whether every text of a meta column is one that the store has a number for.
pub(super) fn has_numbers(name: &str, group_by: Option<GroupBy>) -> bool {
    match name {
        "input_id" | "agent" | "parent" | "weights" | "excluded_reason" => true,
        // Other groups are named by several texts, or by one that an input and a parent may share.
        "group_key" => matches!(group_by, None | Some(GroupBy::Input)),
        _ => false,
    }
}

impl TableSnapshot {
    /// Whether [`ScanColumn::Number`](crate::ScanColumn::Number) is known of the column at a position.
    pub fn has_numbers(&self, position: usize) -> bool {
        META_COLUMNS.get(position).is_some_and(|name| has_numbers(name, self.group_by))
    }

    /// Whether the numbers of texts mean the same in both tables: they are of one snapshot.
    pub fn shares_texts(&self, other: &TableSnapshot) -> bool {
        std::sync::Arc::ptr_eq(&self.texts, &other.texts)
    }

    /// The texts of numbers, as views; what is null stays null.
    pub fn texts(&self, numbers: &UInt32Array) -> ArrayRef {
        repeated(numbers.iter().map(|number| number.map(TextId)), |text| self.texts.get(text))
    }
}
