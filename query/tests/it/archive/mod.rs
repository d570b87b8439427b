//! Versions that left the store, and what queries see of them.

mod columns;
mod damage;
mod family;
pub(crate) mod fixture;
mod gone;
mod groups;
mod meddling;
mod moving;
mod others;
mod past;
mod python;
mod reading;
mod s3;
mod stopping;
mod together;
