//! What a publisher tells of itself.

/// What was done so far, and what there is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PublisherCounts {
    /// Snapshots that were published.
    pub snapshots: u64,
    /// Versions that could be had in place.
    pub in_place: u64,
    /// Gets that were granted.
    pub granted: u64,
    /// Connections that were made: a domain a reader, however often it gets, and one for each wait.
    pub domains_made: u64,
    /// Readers that were refused: of another user, or without the protocol.
    pub refused: u64,
    /// Domains that are there now, those included whose reader has gone without an end of its holds.
    pub domains: usize,
    /// Versions that are held now.
    pub holds: usize,
    /// Memories that were made for slots so far. It stands still while versions fit.
    pub memories_made: u64,
}
