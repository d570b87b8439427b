//! The shape of a policy: plain data.

use crate::device::AttentionHeads;
use crate::error::Error;

/// Which of two relatives a policy is: they differ in the attention block only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModelType {
    /// Q, k and v projections have biases. The default.
    #[default]
    Qwen2,
    /// They have none; each head of queries and keys goes through an RMSNorm before its rotation.
    Qwen3,
}

/// What kind of policy: the fields of a Qwen2 or Qwen3 `config.json`, under their names there.
///
/// Nothing but q, k and v has a bias; the embedding is also the output matrix (tied).
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyConfig {
    /// Which of the relatives. Default [`ModelType::Qwen2`].
    pub model_type: ModelType,
    /// Number of tokens.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides the number of query heads.
    pub num_key_value_heads: usize,
    /// Values of one head; even.
    pub head_dim: usize,
    /// Base of the rotary angles: dimension pair j of a head turns by `position . rope_theta^(-2j / head_dim)`.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f32,
    /// The longest sequence, prompt and response together.
    pub max_position_embeddings: usize,
    /// Standard deviation of freshly initialised matrices. Biases start at 0, norms at 1.
    pub initializer_range: f32,
}

impl PolicyConfig {
    /// The reference size: 2 layers, width 128, 4 heads over 2 key-value heads; 0.41 million parameters at 300 tokens.
    pub fn small(vocab_size: usize) -> Self {
        Self {
            model_type: ModelType::Qwen2,
            vocab_size,
            hidden_size: 128,
            intermediate_size: 344,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 32,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-6,
            max_position_embeddings: 512,
            initializer_range: 0.02,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Config`] names the first field that no policy can have.
    pub fn validate(&self) -> Result<(), Error> {
        self.validate_sizes()?;
        let refuse = |field, value: &dyn ToString, reason| {
            Err(Error::Config { field, value: value.to_string(), reason })
        };
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            let reason = "has to divide num_attention_heads";
            return refuse("num_key_value_heads", &self.num_key_value_heads, reason);
        }
        if !self.head_dim.is_multiple_of(2) {
            return refuse("head_dim", &self.head_dim, "has to be even: rotary positions turn pairs");
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            return refuse("rope_theta", &self.rope_theta, "has to be positive");
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return refuse("rms_norm_eps", &self.rms_norm_eps, "has to be positive");
        }
        if !(self.initializer_range.is_finite() && self.initializer_range >= 0.0) {
            return refuse("initializer_range", &self.initializer_range, "has to be 0 or more");
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<(), Error> {
        const LIMIT: usize = 1 << 24;
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((field, value)) = sizes.into_iter().find(|&(_, size)| size == 0 || size > LIMIT) {
            return Err(Error::Config {
                field,
                value: value.to_string(),
                reason: "has to be 1 to 16,777,216",
            });
        }
        self.validate_memory()
    }

    /// Refuses what no host could hold before anything is computed from it in machine words.
    fn validate_memory(&self) -> Result<(), Error> {
        const LIMIT: u128 = 1 << 36;
        let wide = |size: usize| size as u128;
        let heads = wide(self.num_attention_heads) + 2 * wide(self.num_key_value_heads);
        let attention = (heads + wide(self.num_attention_heads)) * wide(self.head_dim);
        let layer = wide(self.hidden_size) * (attention + 3 * wide(self.intermediate_size));
        let parameters =
            wide(self.vocab_size) * wide(self.hidden_size) + wide(self.num_hidden_layers) * layer;
        let angles = wide(self.max_position_embeddings) * wide(self.head_dim);
        for (field, value) in [("parameters", parameters), ("rotary angles", angles)] {
            if value > LIMIT {
                return Err(Error::Config {
                    field,
                    value: value.to_string(),
                    reason: "more than 2^36 values",
                });
            }
        }
        Ok(())
    }

    /// The attention heads.
    pub fn heads(&self) -> AttentionHeads {
        AttentionHeads {
            queries: self.num_attention_heads,
            keys: self.num_key_value_heads,
            dimension: self.head_dim,
        }
    }
}
