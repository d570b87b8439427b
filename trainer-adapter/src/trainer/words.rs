//! Totals and members of open groups as 64-bit words; numbers are their bits.
//!
//! Totals are rows, tokens, and the weight of both. A member is 14 words: 0 expected, 1 excluded, 2 arrived; its reward; its
//! totals; rows, tokens, clipped tokens, loss, log-probability, entropy and KL of its report; the loss that does not depend on
//! the advantage.

use crate::gradient::{Arrival, Member, UnitReport, UnitTotals};

pub(super) const MEMBER_WORDS: usize = 14;

pub(super) fn total_words(totals: &UnitTotals) -> [u64; 4] {
    let UnitTotals { rows, tokens, row_weight, token_weight } = *totals;
    [rows, tokens, row_weight.to_bits(), token_weight.to_bits()]
}

pub(super) fn totals_of(words: &[u64]) -> UnitTotals {
    let (row_weight, token_weight) = (f64::from_bits(words[2]), f64::from_bits(words[3]));
    UnitTotals { rows: words[0], tokens: words[1], row_weight, token_weight }
}

pub(super) fn member_words(member: &Member) -> [u64; MEMBER_WORDS] {
    let mut words = [0; MEMBER_WORDS];
    let Member::Arrived(Arrival { reward, totals, policy, rest_loss }) = member else {
        words[0] = u64::from(*member == Member::Excluded);
        return words;
    };
    words[0] = 2;
    words[1] = reward.to_bits();
    words[2..6].copy_from_slice(&total_words(totals));
    words[6..9].copy_from_slice(&[policy.rows, policy.tokens, policy.clipped_tokens]);
    let numbers =
        [policy.loss_numerator, policy.mean_log_prob, policy.mean_entropy, policy.mean_kl, *rest_loss];
    words[9..].copy_from_slice(&numbers.map(f64::to_bits));
    words
}

pub(super) fn member_of(words: &[u64]) -> Member {
    let number = |index: usize| f64::from_bits(words[index]);
    let policy = UnitReport {
        rows: words[6],
        tokens: words[7],
        clipped_tokens: words[8],
        loss_numerator: number(9),
        mean_log_prob: number(10),
        mean_entropy: number(11),
        mean_kl: number(12),
    };
    match words[0] {
        0 => Member::Expected,
        1 => Member::Excluded,
        _ => Member::Arrived(Arrival {
            reward: number(1),
            totals: totals_of(&words[2..6]),
            policy,
            rest_loss: number(13),
        }),
    }
}
