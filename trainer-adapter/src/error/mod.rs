//! What can go wrong, and what the caller does about it.

mod kind;

pub use kind::ErrorKind;

/// A refused call. Nothing has changed when one is returned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of a configuration has a value that no policy or trainer can have.
    #[error("{field} = {value}: {reason}")]
    Config {
        /// The field's name.
        field: &'static str,
        /// Its value, as written.
        value: String,
        /// What it has to be.
        reason: &'static str,
    },
    /// A token is outside the vocabulary.
    #[error("sequence {row}: token {token} is outside the vocabulary of {vocab_size}")]
    Token {
        /// Which sequence of the call, from 0.
        row: usize,
        /// The token.
        token: u32,
        /// The size of the vocabulary.
        vocab_size: usize,
    },
    /// A prompt is empty: the first token has nothing that it could follow.
    #[error("sequence {row} has an empty prompt")]
    EmptyPrompt {
        /// Which sequence of the call, from 0.
        row: usize,
    },
    /// A sequence is longer than the policy's positions.
    #[error("sequence {row} needs {length} positions, the policy has {limit}")]
    TooLong {
        /// Which sequence of the call, from 0.
        row: usize,
        /// The positions that it needs.
        length: usize,
        /// `max_position_embeddings`.
        limit: usize,
    },
    /// An advantage is not a finite number.
    #[error("sequence {row} has advantage {advantage}")]
    Advantage {
        /// Which sequence of the unit, from 0.
        row: usize,
        /// Its advantage.
        advantage: f32,
    },
    /// A row's weight is negative or not a finite number.
    #[error("sequence {row} has weight {weight}; give 0 or more")]
    Weight {
        /// Which sequence of the unit, from 0.
        row: usize,
        /// Its weight.
        weight: f32,
    },
    /// A column beside the response has another length than the response.
    #[error("sequence {row} has {length} values of {column} for {expected} tokens")]
    ColumnLength {
        /// Which sequence of the unit, from 0.
        row: usize,
        /// The column.
        column: &'static str,
        /// Its length.
        length: usize,
        /// The tokens of the response.
        expected: usize,
    },
    /// A column that the objective needs is not given.
    #[error("sequence {row} has no {column}; give them or train with an objective that does not need them")]
    MissingColumn {
        /// Which sequence of the unit, from 0.
        row: usize,
        /// The column.
        column: &'static str,
    },
    /// A mask lets no token through.
    #[error("sequence {row} trains none of its {tokens} tokens; leave it out or give it weight 0")]
    EmptyMask {
        /// Which sequence of the unit, from 0.
        row: usize,
        /// The tokens of its response.
        tokens: usize,
    },
    /// A recorded log-probability of a trained token is not a finite number.
    #[error("sequence {row} has {column} {value} at token {token} of its response")]
    LogProb {
        /// Which sequence of the unit, from 0.
        row: usize,
        /// The column.
        column: &'static str,
        /// Which token of the response, from 0.
        token: usize,
        /// The value.
        value: f32,
    },
    /// A unit without rows.
    #[error("unit {position} has no rows")]
    EmptyUnit {
        /// Its planned position.
        position: usize,
    },
    /// A unit of another policy: a gradient cache never mixes policies.
    #[error("unit {position} belongs to policy {found:?}, this trainer trains {expected:?}")]
    OtherPolicy {
        /// Its planned position.
        position: usize,
        /// The trainer's policy.
        expected: String,
        /// The unit's policy.
        found: String,
    },
    /// A unit that was generated under another version of the policy.
    #[error("unit {position} is of version {found}, the policy is at {current}")]
    OtherVersion {
        /// Its planned position.
        position: usize,
        /// The version of the trainer's policy.
        current: u64,
        /// The version of the unit.
        found: u64,
    },
    /// The position has a unit already: drop the cache to start the step over.
    #[error("position {position} of this step is accumulated already")]
    PositionTaken {
        /// The planned position.
        position: usize,
    },
    /// The loss is not linear in the advantage, so a group's gradient is not made of sums over its members.
    #[error("group {position} cannot be trained early: {reason}")]
    NotLinear {
        /// Its planned position.
        position: usize,
        /// Why, and the way out.
        reason: &'static str,
    },
    /// No group is open there: it was never begun, was closed, or was excluded.
    #[error("no group is open at position {position}; begin it first")]
    NoGroup {
        /// The planned position.
        position: usize,
    },
    /// A member cannot do this now.
    #[error("group {position}: member {member} {reason}")]
    Member {
        /// The group's planned position.
        position: usize,
        /// The member, from 0.
        member: usize,
        /// What is in the way.
        reason: &'static str,
    },
    /// A reward is not a finite number, or neither of the two values that the group was begun with.
    #[error("group {position}: member {member} has reward {reward}, which the group was not begun for")]
    Reward {
        /// The group's planned position.
        position: usize,
        /// The member, from 0.
        member: usize,
        /// Its reward.
        reward: f64,
    },
    /// A row of a trajectory has an advantage of its own.
    #[error(
        "sequence {row} has advantage {advantage}; until their group closes, rows of a trajectory have 1"
    )]
    RowAdvantage {
        /// Which sequence of the trajectory, from 0.
        row: usize,
        /// Its advantage.
        advantage: f32,
    },
    /// Members of a group have not come yet.
    #[error("group {position} still waits for {missing} members; exclude them or the group")]
    GroupIncomplete {
        /// The group's planned position.
        position: usize,
        /// How many.
        missing: usize,
    },
    /// The advantages that a group was closed with do not fit its rewards.
    #[error("group {position}: {reason}")]
    GroupAdvantages {
        /// The group's planned position.
        position: usize,
        /// What does not fit.
        reason: String,
    },
    /// A group's sums left the range of their 64 bits, or a gradient was not finite.
    #[error(
        "the sums of group {position} left their range; exclude it, name a reference nearer to the rewards, or train it whole"
    )]
    SumRange {
        /// The group's planned position.
        position: usize,
    },
    /// Groups are open: an update now would lose them.
    #[error("the groups at {positions:?} are open; close or exclude them")]
    OpenGroups {
        /// Their planned positions.
        positions: Vec<usize>,
    },
    /// The cache to be replaced has units or open groups: apply or drop them first.
    #[error(
        "the gradient cache has {units} units and open groups; apply or drop it before another is put in its place"
    )]
    CacheNotEmpty {
        /// How many.
        units: usize,
    },
    /// A stored cache belongs to another policy, version, set of weights or loss.
    #[error("the stored cache is of {field} {found}, this trainer's is {expected}")]
    Foreign {
        /// What differs.
        field: &'static str,
        /// This trainer's.
        expected: String,
        /// The cache's.
        found: String,
    },
    /// A rank of the process group is lost or does not belong to the step. No cache has changed.
    #[error("rank {rank} failed: {reason}; accumulate its units elsewhere and exchange again without it")]
    RankFailed {
        /// The rank.
        rank: usize,
        /// What happened.
        reason: String,
    },
    /// A copy between device and host failed. What it was to write is undefined; copy again.
    #[error("a copy between device and host failed: {reason}")]
    Copy {
        /// What the device said.
        reason: String,
    },
    /// Host memory cannot be had, that copies go to and from or that is the device's own. The device goes on.
    #[error(
        "no host memory for {values} values of 4 bytes each: {reason}; let go of memory, of pinned memory above all, here or in other processes, or ask for less"
    )]
    HostMemory {
        /// How many values it was to have.
        values: usize,
        /// What the device said.
        reason: String,
    },
    /// The device has no stream to give, a queue of copies. Nothing was queued, and the device goes on.
    #[error(
        "the device gives no stream: {reason}; let go of streams, or of memory of the device, here or in other processes"
    )]
    Stream {
        /// What the device said.
        reason: String,
    },
    /// Memory of the device cannot be shared between processes as it was asked for. The device goes on.
    #[error("memory of the device is not shared: {reason}")]
    Share {
        /// What is wrong, and the way out where there is one.
        reason: String,
    },
    /// Host memory that somebody else has cannot be given to copies. The device goes on.
    #[error("host memory is not pinned: {reason}; copies go through memory of the device's own")]
    Pin {
        /// What the device said.
        reason: String,
    },
    /// The device has failed for good, and what it has computed since is undefined: take another, or this one in a new process, and
    /// restore a stored state on it.
    #[error(
        "the device failed: {0}; take another, or this one in a new process, and restore a stored state on it"
    )]
    Device(#[from] crate::device::cuda::CudaError),
    /// There is nothing to apply: accumulate first.
    #[error("the gradient cache is empty, there is no update to apply")]
    EmptyCache,
    /// The step's gradient is not finite, or is not where it is divided by what the loss counts. The cache was emptied: lower the
    /// learning rate, leave units out, or look at the rows' weights.
    #[error("the gradient, of norm {norm}, is not finite in 32 bits; the weights were left as they are")]
    NotFinite {
        /// The norm found.
        norm: f64,
    },
    /// The bytes are not a safetensors payload.
    #[error("not a safetensors payload: {reason}")]
    Payload {
        /// What the reader said.
        reason: String,
    },
    /// A tensor is missing, too many, or has another type or shape than the configuration says.
    #[error("tensor {name}: {reason}")]
    Tensor {
        /// The tensor's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// A buffer that only this process has was to be exported.
    pub(crate) fn not_shared() -> Self {
        let reason =
            "the buffer is this process's own; allocate it with `allocate_shared`, or publish a copy";
        Self::Share { reason: reason.into() }
    }
}
