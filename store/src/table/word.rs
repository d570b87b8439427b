//! Where a row stands with one consumer.

/// How far a consumer has come with a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A required cell is missing.
    #[default]
    Waiting,
    /// Every required cell is there; on the ready queue, alone or as a member of its group.
    Ready,
    /// In the hands of a holder.
    Leased,
    /// Its gradient is in its policy's cache.
    Accumulated,
    /// Finished by its task, or consumed by a step.
    Done,
    /// Left out, or none of this consumer's business.
    Out,
}

/// A row's word for one consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConsumerWord {
    pub(crate) progress: Progress,
    /// While ready and ungrouped: the place in the ready queue. From the lease on: the claim. Below 2^61.
    pub(crate) ticket_or_claim: u64,
}

const NUMBER_BITS: u32 = 61;

impl ConsumerWord {
    /// The stored form: progress in the three bits above, the number below.
    pub(crate) fn pack(self) -> u64 {
        (self.progress as u64) << NUMBER_BITS | self.ticket_or_claim & ((1 << NUMBER_BITS) - 1)
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        let progress = match packed >> NUMBER_BITS {
            1 => Progress::Ready,
            2 => Progress::Leased,
            3 => Progress::Accumulated,
            4 => Progress::Done,
            5 => Progress::Out,
            _ => Progress::Waiting,
        };
        ConsumerWord { progress, ticket_or_claim: packed & ((1 << NUMBER_BITS) - 1) }
    }

    /// Whether a live claim has the row.
    pub(crate) fn is_held(self) -> bool {
        matches!(self.progress, Progress::Leased | Progress::Accumulated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_survives_packing() {
        use Progress::*;
        for progress in [Waiting, Ready, Leased, Accumulated, Done, Out] {
            for ticket_or_claim in [0, 1, (1 << NUMBER_BITS) - 1] {
                let word = ConsumerWord { progress, ticket_or_claim };
                assert_eq!(ConsumerWord::unpack(word.pack()), word);
            }
        }
        assert_eq!(ConsumerWord::default().pack(), 0);
    }
}
