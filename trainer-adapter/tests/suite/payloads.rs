//! Safetensors payloads: what is written comes back, and hostile bytes are errors.

use super::common::{ragged_config, ragged_configs, shaken_policy, uniform};
use crate::{TestDevice, device};
use forebay_trainer_adapter::{
    Error, ErrorKind, ModelType, Policy, PolicyConfig, StoredType, Trainer, TrainerOptions,
};
use safetensors::SafeTensors;

fn load(config: &PolicyConfig, bytes: &[u8]) -> Result<Policy<TestDevice>, Error> {
    Policy::load(&device(1), config, bytes)
}

#[test]
fn weights_come_back_exactly() {
    let device = device(1);
    let policy = shaken_policy(&ragged_config(), 3);
    let loaded = load(&ragged_config(), &policy.save(&device, StoredType::F32)).unwrap();
    assert_eq!(loaded.sha256(&device), policy.sha256(&device));
    let rounded = load(&ragged_config(), &policy.save(&device, StoredType::Bf16)).unwrap();
    for (exact, rounded) in policy.values(&device).iter().zip(rounded.values(&device)) {
        assert!((exact - rounded).abs() <= exact.abs() / 256.0, "{exact} became {rounded}");
    }
    let again = load(&ragged_config(), &rounded.save(&device, StoredType::Bf16)).unwrap();
    assert_eq!(again.sha256(&device), rounded.sha256(&device), "what was rounded once stays");
}

/// The names and shapes of PROTOCOLS 11.3, and what transformers asks of a file.
#[test]
fn tensors_have_the_names_and_shapes_of_their_model_type() {
    ragged_configs().iter().for_each(check_names);
}

fn check_names(config: &PolicyConfig) {
    let bytes = shaken_policy(config, 3).save(&device(1), StoredType::Bf16);
    let payload = SafeTensors::deserialize(&bytes).unwrap();
    let mut expected = vec![
        ("model.embed_tokens.weight".to_owned(), vec![37, 20]),
        ("model.norm.weight".to_owned(), vec![20]),
    ];
    for layer in 0..3 {
        let biases: [(&str, &[usize]); 3] = [
            ("self_attn.q_proj.bias", &[36]),
            ("self_attn.k_proj.bias", &[18]),
            ("self_attn.v_proj.bias", &[18]),
        ];
        let norms: [(&str, &[usize]); 2] =
            [("self_attn.q_norm.weight", &[6]), ("self_attn.k_norm.weight", &[6])];
        let own = if config.model_type == ModelType::Qwen2 { &biases[..] } else { &norms };
        let parts: [(&str, &[usize]); 9] = [
            ("input_layernorm.weight", &[20]),
            ("self_attn.q_proj.weight", &[36, 20]),
            ("self_attn.k_proj.weight", &[18, 20]),
            ("self_attn.v_proj.weight", &[18, 20]),
            ("self_attn.o_proj.weight", &[20, 36]),
            ("post_attention_layernorm.weight", &[20]),
            ("mlp.gate_proj.weight", &[27, 20]),
            ("mlp.up_proj.weight", &[27, 20]),
            ("mlp.down_proj.weight", &[20, 27]),
        ];
        let all = parts.iter().chain(own);
        expected.extend(all.map(|(part, shape)| (format!("model.layers.{layer}.{part}"), shape.to_vec())));
    }
    let mut found: Vec<(String, Vec<usize>)> =
        payload.tensors().into_iter().map(|(name, view)| (name, view.shape().to_vec())).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
}

/// Each damage is a typed error; none is a panic and none is a policy.
#[test]
fn hostile_payloads_are_refused() {
    let device = device(1);
    let config = ragged_config();
    let good = shaken_policy(&config, 3).save(&device, StoredType::F32);
    let renamed = String::from_utf8_lossy(&good[8..]).find("model.norm").unwrap() + 8;
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let cases = [
        ("empty", Vec::new()),
        ("zeros", vec![0; 64]),
        ("no data", good[..good.len() / 2].to_vec()),
        ("one byte short", good[..good.len() - 1].to_vec()),
        ("one byte more", with(&|bytes| bytes.push(0))),
        ("huge header", with(&|bytes| bytes[..8].fill(0xFF))),
        ("header beyond the file", with(&|bytes| bytes[..8].copy_from_slice(&(1_u64 << 40).to_le_bytes()))),
        ("no JSON", with(&|bytes| bytes[8] = b'!')),
        ("unknown tensor", with(&|bytes| bytes[renamed] = b'M')),
    ];
    for (name, bytes) in cases {
        let refused = load(&config, &bytes).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Corrupt), "{name}");
    }
    let mut wider = config.clone();
    wider.intermediate_size += 1;
    assert!(matches!(load(&wider, &good), Err(Error::Tensor { .. })));
    let mut deeper = config.clone();
    deeper.num_hidden_layers += 1;
    assert!(matches!(load(&deeper, &good), Err(Error::Tensor { .. })));
    let other = PolicyConfig { model_type: ModelType::Qwen3, ..config.clone() };
    assert!(matches!(load(&other, &good), Err(Error::Tensor { .. })));
    let state = Trainer::new(&device, shaken_policy(&config, 3), TrainerOptions::default()).unwrap().state();
    let refused = Trainer::restore(&device, &other, TrainerOptions::default(), &state);
    assert_eq!(refused.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
    let mut shallower = config;
    shallower.num_hidden_layers -= 1;
    assert!(matches!(load(&shallower, &good), Err(Error::Payload { .. })));
}

/// Random damage to headers of policies and of trainers' states: whatever it is, it does not panic.
#[test]
fn random_damage_never_panics() {
    let (device, config) = (device(1), ragged_config());
    let policy = shaken_policy(&config, 3);
    let weights = policy.save(&device, StoredType::Bf16);
    let state = Trainer::new(&device, policy, TrainerOptions::default()).unwrap().state();
    let mut seed = 99;
    println!("seed {seed}");
    for round in 0..400 {
        let source = if round % 2 == 0 { &weights } else { &state };
        let mut bytes = source.clone();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for _ in 0..1 + round % 5 {
            let at = (uniform(&mut seed) * header as f64) as usize;
            bytes[at] = (uniform(&mut seed) * 256.0) as u8;
        }
        let _ = load(&config, &bytes);
        let _ = Trainer::restore(&device, &config, TrainerOptions::default(), &bytes);
    }
}

#[test]
fn configurations_that_no_policy_can_have_are_named() {
    let with = |change: &dyn Fn(&mut PolicyConfig)| {
        let mut config = ragged_config();
        change(&mut config);
        config
    };
    let cases = [
        ("vocab_size", with(&|config| config.vocab_size = 0)),
        ("hidden_size", with(&|config| config.hidden_size = usize::MAX)),
        ("intermediate_size", with(&|config| config.intermediate_size = 1 << 60)),
        ("num_hidden_layers", with(&|config| config.num_hidden_layers = 0)),
        ("num_key_value_heads", with(&|config| config.num_key_value_heads = 4)),
        ("head_dim", with(&|config| config.head_dim = 7)),
        ("rope_theta", with(&|config| config.rope_theta = -1.0)),
        ("rms_norm_eps", with(&|config| config.rms_norm_eps = f32::NAN)),
        ("initializer_range", with(&|config| config.initializer_range = f32::INFINITY)),
        ("max_position_embeddings", with(&|config| config.max_position_embeddings = 0)),
        ("parameters", with(&|config| (config.vocab_size, config.hidden_size) = (1 << 24, 1 << 24))),
        (
            "rotary angles",
            with(&|config| (config.head_dim, config.max_position_embeddings) = (1 << 20, 1 << 24)),
        ),
    ];
    for (name, config) in cases {
        let refused = Policy::initialise(&device(1), &config, 1);
        assert!(matches!(refused, Err(Error::Config { field, .. }) if field == name), "{name}: {refused:?}");
    }
}
