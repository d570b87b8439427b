//! Where each tensor lies in the flat run of parameters.
//!
//! Tensors lie without gaps, in the order of the forward pass, under their Qwen2 or Qwen3 names. Matrices that read the same
//! input are neighbours, so that q, k and v (and gate and up) are one product: `[A.D + 2 K.D, H]` and `[2 I, H]`.
//! Gradients and moments have the same layout.

use super::config::{ModelType, PolicyConfig};
use crate::device::Linear;

/// One named tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in a safetensors file of its model type.
    pub name: String,
    /// Its shape; matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Where its first value lies.
    pub offset: usize,
}

impl Tensor {
    /// Number of values.
    pub fn length(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A vector among the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// One layer's tensors, neighbours taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayerLayout {
    pub(crate) input_norm: Vector,
    pub(crate) qkv: Linear,
    /// Qwen2 only.
    pub(crate) qkv_bias: Option<Vector>,
    /// Qwen3 only: the norm of the query heads, then that of the key heads.
    pub(crate) head_norms: Option<Vector>,
    pub(crate) output: Linear,
    pub(crate) mlp_norm: Vector,
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
}

/// Where each tensor of a policy lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterLayout {
    tensors: Vec<Tensor>,
    length: usize,
    pub(crate) embedding: Linear,
    pub(crate) layers: Vec<LayerLayout>,
    pub(crate) final_norm: Vector,
}

/// Index of a matrix among those of [`ParameterLayout::linears`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinearIndex {
    Embedding,
    Qkv(usize),
    Output(usize),
    GateUp(usize),
    Down(usize),
}

impl From<LinearIndex> for usize {
    fn from(index: LinearIndex) -> Self {
        match index {
            LinearIndex::Embedding => 0,
            LinearIndex::Qkv(layer) => 1 + 4 * layer,
            LinearIndex::Output(layer) => 2 + 4 * layer,
            LinearIndex::GateUp(layer) => 3 + 4 * layer,
            LinearIndex::Down(layer) => 4 + 4 * layer,
        }
    }
}

impl ParameterLayout {
    /// Lays out the parameters of a valid configuration.
    pub fn new(config: &PolicyConfig) -> Self {
        let mut tensors = Tensors::default();
        let embedding = tensors.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
        let layers = (0..config.num_hidden_layers).map(|layer| tensors.layer(config, layer)).collect();
        let final_norm = tensors.vector("model.norm.weight", config.hidden_size);
        Self { length: tensors.end, tensors: tensors.list, embedding, layers, final_norm }
    }

    /// All tensors, in the order of their offsets.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Number of parameters.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The matrices that rows are multiplied by, in the order of [`LinearIndex`].
    pub(crate) fn linears(&self) -> Vec<Linear> {
        let each = |layer: &LayerLayout| [layer.qkv, layer.output, layer.gate_up, layer.down];
        std::iter::once(self.embedding).chain(self.layers.iter().flat_map(each)).collect()
    }
}

#[derive(Default)]
struct Tensors {
    list: Vec<Tensor>,
    end: usize,
}

impl Tensors {
    fn push(&mut self, name: &str, shape: Vec<usize>) -> usize {
        let tensor = Tensor { name: name.to_owned(), shape, offset: self.end };
        self.end += tensor.length();
        self.list.push(tensor);
        self.list[self.list.len() - 1].offset
    }

    fn matrix(&mut self, name: &str, outputs: usize, inputs: usize) -> Linear {
        Linear { offset: self.push(name, vec![outputs, inputs]), outputs, inputs }
    }

    fn vector(&mut self, name: &str, length: usize) -> Vector {
        Vector { offset: self.push(name, vec![length]), length }
    }

    /// Vectors beside each other as one.
    fn vectors<const N: usize>(&mut self, parts: [(String, usize); N]) -> Vector {
        let offset = self.end;
        let length = parts.iter().map(|(name, length)| self.vector(name, *length).length).sum();
        Vector { offset, length }
    }

    /// Matrices over one input as one.
    fn matrices(&mut self, parts: &[(String, usize)], inputs: usize) -> Linear {
        let offset = self.end;
        let outputs = parts.iter().map(|(name, outputs)| self.matrix(name, *outputs, inputs).outputs).sum();
        Linear { offset, outputs, inputs }
    }

    fn layer(&mut self, config: &PolicyConfig, layer: usize) -> LayerLayout {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let heads = config.heads();
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = (heads.query_columns(), heads.key_columns());
        let projections = |kind: &str| {
            [("q", queries), ("k", keys), ("v", keys)]
                .map(|(which, size)| (name(&format!("self_attn.{which}_proj.{kind}")), size))
        };
        let input_norm = self.vector(&name("input_layernorm.weight"), hidden);
        let qkv = self.matrices(&projections("weight"), hidden);
        let (mut qkv_bias, mut head_norms) = (None, None);
        match config.model_type {
            ModelType::Qwen2 => qkv_bias = Some(self.vectors(projections("bias"))),
            ModelType::Qwen3 => {
                let norms = ["q", "k"].map(|which| name(&format!("self_attn.{which}_norm.weight")));
                head_norms = Some(self.vectors(norms.map(|name| (name, heads.dimension))));
            }
        }
        LayerLayout {
            input_norm,
            qkv,
            qkv_bias,
            head_norms,
            output: self.matrix(&name("self_attn.o_proj.weight"), hidden, queries),
            mlp_norm: self.vector(&name("post_attention_layernorm.weight"), hidden),
            gate_up: self.matrices(
                &[(name("mlp.gate_proj.weight"), inner), (name("mlp.up_proj.weight"), inner)],
                hidden,
            ),
            down: self.matrix(&name("mlp.down_proj.weight"), hidden, inner),
        }
    }
}
