//! The shapes of attention: which rows see which.

/// Heads of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionHeads {
    /// Query heads.
    pub queries: usize,
    /// Key and value heads; divides `queries`. Each serves `queries / keys` consecutive query heads.
    pub keys: usize,
    /// Values of one head.
    pub dimension: usize,
}

impl AttentionHeads {
    /// Columns of all query heads.
    pub fn query_columns(self) -> usize {
        self.queries * self.dimension
    }

    /// Columns of all key heads (and of all value heads).
    pub fn key_columns(self) -> usize {
        self.keys * self.dimension
    }

    /// Columns of queries, keys and values side by side.
    pub fn columns(self) -> usize {
        self.query_columns() + 2 * self.key_columns()
    }

    /// The key head that a query head reads.
    pub fn key_head(self, query_head: usize) -> usize {
        query_head / (self.queries / self.keys)
    }

    /// What scores are multiplied by: `dimension^-1/2`.
    pub fn scale(self) -> f32 {
        1.0 / (self.dimension as f32).sqrt()
    }
}

/// A run of rows that continues a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// Its first row, counted from the family's first row.
    pub first: usize,
    /// How many rows.
    pub rows: usize,
}

/// Sequences with one prompt: the prompt's rows, then each branch's rows.
///
/// A prompt row sees the prompt up to itself; a branch row sees the whole prompt and its branch up to itself. So the
/// column of a key in the family's attention weights is its position in the sequence, and the row of position `p` has
/// `p + 1` weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// First row in the batch.
    pub first: usize,
    /// Rows of the prompt.
    pub prompt: usize,
    /// The branches, one after the other behind the prompt.
    pub branches: Vec<Branch>,
}

impl Family {
    /// Rows of prompt and branches.
    pub fn rows(&self) -> usize {
        self.prompt + self.branches.iter().map(|branch| branch.rows).sum::<usize>()
    }

    /// Columns of the attention weights: the longest sequence.
    pub fn columns(&self) -> usize {
        self.prompt + self.branches.iter().map(|branch| branch.rows).max().unwrap_or(0)
    }
}

/// Values of memory that a device takes for attention over a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionMemory {
    /// What a layer keeps for the backward pass.
    pub kept: usize,
    /// What the backward pass works in, one layer after the other.
    pub scratch: usize,
}

/// Attention over a batch of families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAttention {
    /// The heads.
    pub heads: AttentionHeads,
    /// The families, in the order of their rows.
    pub families: Vec<Family>,
}

impl SharedAttention {
    /// Values that the attention weights of all heads need.
    pub fn weights_length(&self) -> usize {
        self.families.iter().map(|family| self.heads.queries * family.rows() * family.columns()).sum()
    }

    /// Values that one head of the largest family needs.
    pub fn scratch_length(&self) -> usize {
        self.families.iter().map(|family| family.rows() * family.columns()).max().unwrap_or(0)
    }
}

/// One row of a decoding batch and its places in the key-value cache.
///
/// A place is an offset of a *slot*: keys and values of one sequence piece for one layer. Lengths are in positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRow {
    /// Offset of the slot with the prompt (read by `cache_attention` only).
    pub prompt_slot: usize,
    /// Capacity of that slot.
    pub prompt_capacity: usize,
    /// Positions to read there.
    pub prompt_length: usize,
    /// Offset of the slot that the row is stored in and continues.
    pub own_slot: usize,
    /// Capacity of that slot.
    pub own_capacity: usize,
    /// Where in it the row's own key and value go; the row reads up to and with it.
    pub own_index: usize,
}
