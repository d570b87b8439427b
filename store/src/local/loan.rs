//! What is said of an extent that is lent.

/// Which extent was lent, in plain numbers: what goes to the process that is to fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loan {
    /// The extent's number.
    pub extent: u32,
    /// Its generation.
    pub generation: u32,
    /// How many bytes long it is, header included.
    pub capacity: u32,
}
