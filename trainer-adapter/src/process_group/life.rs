//! The states of a group's life, and the ways between them.

use std::fmt;

/// Where a group is in its life.
///
/// ```text
///            ┌──────── start failed ────────┐
///            ▼                              │
/// Absent ─ activate ─> Starting ────────> Active ─ suspend, a rank lost ─> Suspending ─> Suspended
///                         ▲                                                                 │
///                         └──────────────────────────── resume ─────────────────────────────┘
/// ```
///
/// A start that fails leads back to where it began; `begin_from` leads from `Absent` to `Suspended`; `destroy` from anywhere to `Destroyed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// No state was ever set, no process is there.
    Absent,
    /// Processes are being made; all of them will be there or none.
    Starting,
    /// All ranks are there and have their state.
    Active,
    /// The state is being set and the processes ended.
    Suspending,
    /// No process is there; the state is kept.
    Suspended,
    /// No process is there, and none will be.
    Destroyed,
}

impl Life {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Absent, Self::Starting, Self::Active, Self::Suspending, Self::Suspended, Self::Destroyed];

    /// Whether a group may go from here to `next`.
    pub fn leads_to(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Absent | Self::Suspended, Self::Starting)
                | (Self::Absent, Self::Suspended)
                | (Self::Starting, Self::Active | Self::Absent | Self::Suspended)
                | (Self::Active, Self::Suspending)
                // Absent: it was lost before its first state was set.
                | (Self::Suspending, Self::Suspended | Self::Absent)
        ) || (next == Self::Destroyed && self != Self::Destroyed)
    }

    /// Whether processes may be there.
    pub fn has_processes(self) -> bool {
        matches!(self, Self::Starting | Self::Active | Self::Suspending)
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Starting => "starting",
            Self::Active => "active",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Destroyed => "destroyed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FX-53
    #[test]
    fn a_group_goes_only_the_ways_that_are_drawn() {
        use Life::{Absent, Active, Destroyed, Starting, Suspended, Suspending};
        let drawn = [
            (Absent, Starting),
            (Absent, Suspended),
            (Starting, Active),
            (Starting, Absent),
            (Starting, Suspended),
            (Active, Suspending),
            (Suspending, Suspended),
            (Suspending, Absent),
            (Suspended, Starting),
        ];
        for from in Life::ALL {
            for to in Life::ALL {
                let expected = drawn.contains(&(from, to)) || (to == Destroyed && from != Destroyed);
                assert_eq!(from.leads_to(to), expected, "{from} to {to}");
            }
        }
    }
}
