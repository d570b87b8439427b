//! What the documents say is what the program does.

use std::path::Path;

use crate::support::forebay;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn every_subcommand_explains_itself() {
    let overview = String::from_utf8(forebay(&["--help"]).output().unwrap().stdout).unwrap();
    for command in ["run", "sql", "warm-up"] {
        assert!(overview.contains(command), "{overview}");
        let help = String::from_utf8(forebay(&[command, "--help"]).output().unwrap().stdout).unwrap();
        let undocumented = help.lines().zip(help.lines().skip(1)).find(|(line, next)| {
            line.trim_start().starts_with("--") && next.trim().is_empty() && !line.contains("  ")
        });
        assert!(undocumented.is_none(), "{command}: {undocumented:?}");
    }
    for option in ["--dir", "--seed", "--steps", "--workers", "--barrier", "--resume", "--json", "--quiet"] {
        let help = String::from_utf8(forebay(&["run", "--help"]).output().unwrap().stdout).unwrap();
        assert!(help.contains(option), "{option}");
    }
}

#[test]
fn every_key_of_the_configuration_is_explained() {
    let explained = read("docs/configuration.md");
    let defaults: toml::Value = toml::from_str(
        &forebay::config::Config::load(Path::new("examples/reasoning.toml")).unwrap().identity(),
    )
    .unwrap();
    let mut keys = Vec::new();
    collect(&defaults, &mut keys);
    assert!(keys.len() > 30);
    for key in keys {
        assert!(explained.contains(&format!("`{key}`")), "docs/configuration.md does not explain `{key}`");
    }
}

fn collect(value: &toml::Value, keys: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                keys.push(key.clone());
                collect(value, keys);
            }
        }
        toml::Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        _ => {}
    }
}
