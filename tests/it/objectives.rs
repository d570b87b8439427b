//! What policies are trained to do, and on what, is for the configuration to say: for all agents, or for one.

use std::path::Path;

use crate::support::{Scratch, forebay, run_config, stderr, weights};

/// Two steps of policies whose groups have a spread; gives their weights.
fn two_steps(scratch: &Scratch, name: &str, text: &str, of_checker: &str) -> Vec<String> {
    let config = scratch.warm_config(name, text, of_checker);
    weights(&run_config(&config, &scratch.path(name), &["--steps", "2"]))
}

fn refuse(arguments: &[&str], expected: &[&str]) {
    let output = forebay(arguments).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    for part in expected {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

// FX-30
#[test]
fn each_setting_gives_other_weights_and_the_defaults_the_same_as_none() {
    let scratch = Scratch::new();
    let reference = two_steps(&scratch, "reference", "", "");
    let defaults = "[trainer]\ndevice = \"cpu\"\n[trainer.objective]\nloss = \"dapo\"\nadvantage = \"population\"\n\
                    advantage_epsilon = 1e-4\npolicy_term = \"score\"\nkl_coefficient = 0.0";
    assert_eq!(two_steps(&scratch, "defaults", defaults, ""), reference);
    let mut found = vec![reference];
    for (name, text) in [
        ("grpo", "loss = \"grpo\""),
        ("dr-grpo", "loss = \"dr_grpo\""),
        ("longer", "loss = \"dr_grpo\"\nloss_length = 1000"),
        ("sample", "advantage = \"sample\""),
        ("centred", "advantage = \"centred\""),
        ("wide", "advantage_epsilon = 0.5"),
        ("clipped", "policy_term = \"clipped\"\nclip_low = 0.1\nclip_high = 0.3"),
        ("truncated", "policy_term = \"truncated\"\nimportance_cap = 0.5"),
        ("near", "kl_coefficient = 0.5"),
    ] {
        let weights = two_steps(&scratch, name, &format!("[trainer.objective]\n{text}"), "");
        for other in &found {
            assert!(weights.iter().zip(other).all(|(one, other)| one != other), "{name} changes nothing");
        }
        found.push(weights);
    }
}

#[test]
fn an_agent_may_have_an_objective_of_its_own() {
    let scratch = Scratch::new();
    let all = "[trainer.objective]\nloss = \"grpo\"\nkl_coefficient = 0.5";
    let own = "[agents.objective]\nloss = \"dapo\"";
    let both = two_steps(&scratch, "both", all, "");
    let one = two_steps(&scratch, "one", all, own);
    assert_eq!(one[0], both[0], "the solver has what all have");
    assert_ne!(one[1], both[1], "the checker has its own");
    let whole = two_steps(&scratch, "whole", all, &format!("{own}\nkl_coefficient = 0.5"));
    assert_eq!(whole, one, "what it does not say is what all have");
}

/// Ranks in processes of their own are told everything; a stand-in for a GPU computes what the processor computes.
#[test]
fn an_objective_gives_the_same_weights_wherever_it_is_computed() {
    let scratch = Scratch::new();
    let objective = "[trainer.objective]\nloss = \"grpo\"\npolicy_term = \"truncated\"\nimportance_cap = 0.9\nkl_coefficient = 0.2";
    let here = two_steps(&scratch, "here", objective, "");
    for (name, more) in [
        ("ranks", "[process_groups]\nworld = 2\nslots = 2"),
        ("stand-in", "[trainer]\ndevice = \"stand-in\""),
    ] {
        assert_eq!(two_steps(&scratch, name, &format!("{more}\n{objective}"), ""), here, "{name}");
    }
    let mixed = scratch.warm_config("mixed", objective, "device = \"stand-in\"");
    let dir = scratch.path("mixed");
    run_config(&mixed, &dir, &["--steps", "1"]);
    let resumed = run_config(&mixed, &dir, &["--resume", "--steps", "2"]);
    assert_eq!(weights(&resumed), here, "resumed, on two devices");
}

#[test]
fn objectives_that_no_policy_can_have_are_refused_by_name() {
    let scratch = Scratch::new();
    let cases: [(&str, &[&str]); 20] = [
        ("loss = \"ppo\"", &["trainer.objective.loss = \"ppo\"", "\"dapo\"", "\"dr_grpo\""]),
        ("los = \"grpo\"", &["unknown field `los`", "did you mean `loss`?"]),
        ("loss = \"dr_grpo\"\nloss_length = 0", &["trainer.objective.loss_length = 0", "at least 1"]),
        ("loss_length = 9", &["trainer.objective.loss_length", "dr_grpo"]),
        ("advantage = \"mean\"", &["trainer.objective.advantage = \"mean\"", "\"centred\""]),
        ("advantage_epsilon = -1.0", &["trainer.objective.advantage_epsilon = -1", "0 or more"]),
        (
            "advantage = \"centred\"\nadvantage_epsilon = 0.5",
            &["trainer.objective.advantage_epsilon", "divides by no deviation"],
        ),
        ("policy_term = \"ppo\"", &["trainer.objective.policy_term = \"ppo\"", "\"truncated\""]),
        ("policy_term = \"clipped\"\nclip_low = 0.0", &["trainer.objective.clip_low = 0", "up to 1"]),
        ("policy_term = \"clipped\"\nclip_low = 1.5", &["trainer.objective.clip_low = 1.5", "up to 1"]),
        ("policy_term = \"clipped\"\nclip_high = inf", &["trainer.objective.clip_high = inf", "finite"]),
        ("clip_high = 0.3", &["trainer.objective.clip_high", "policy_term = \"clipped\""]),
        ("policy_term = \"truncated\"\nimportance_cap = -2.0", &["importance_cap = -2", "above 0"]),
        ("policy_term = \"clipped\"\nimportance_cap = 2.0", &["importance_cap", "\"truncated\""]),
        ("kl_coefficient = -0.1", &["trainer.objective.kl_coefficient = -0.1", "0 or more"]),
        ("kl_coefficient = nan", &["trainer.objective.kl_coefficient = NaN", "0 or more"]),
        (
            "policy_term = \"clipped\"\n[rollout]\ntemperature = 0.5",
            &["trainer.objective.policy_term = \"clipped\"", "rollout.temperature = 0.5"],
        ),
        ("[trainer]\ndevice = \"gpu\"", &["trainer.device = \"gpu\"", "\"stand-in\"", "\"cuda:N\""]),
        (
            "[trainer]\ndevice = \"stand-in\"\n[process_groups]",
            &["trainer.device = \"stand-in\"", "[process_groups]"],
        ),
        ("[trainer]\ndevice = \"cuda:4096\"", &["agent \"solver\" is to be trained on device \"cuda:4096\""]),
    ];
    let dir = scratch.path("run");
    for (text, expected) in cases {
        let config = scratch.warm_config("bad", &format!("[trainer.objective]\n{text}"), "");
        refuse(&["run", &config, "--dir", &dir, "--quiet"], expected);
        assert!(!Path::new(&dir).exists(), "{text}: nothing was touched");
    }
    for (text, expected) in [
        ("device = \"cpus\"", "agents.checker.device = \"cpus\""),
        ("[agents.objective]\nloss = \"mean\"", "agents.checker.objective.loss = \"mean\""),
        ("[agents.objective]\nclip_low = 0.1", "agents.checker.objective.clip_low"),
    ] {
        let config = scratch.warm_config("bad", "", text);
        refuse(&["run", &config, "--dir", &dir, "--quiet"], &[expected]);
    }
}

#[test]
fn a_run_is_resumed_with_its_own_objective_only() {
    let scratch = Scratch::new();
    let dir = scratch.path("run");
    run_config(&scratch.warm_config("one", "", ""), &dir, &["--steps", "1"]);
    let other = scratch.warm_config("other", "[trainer.objective]\nloss = \"grpo\"", "");
    refuse(&["run", &other, "--dir", &dir, "--resume", "--quiet"], &["resume it with its own configuration"]);
}
