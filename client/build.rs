//! Makes the wire types of the protocol, and what its messages are weighed by (`src/wire/weight.rs`). `protox` stands for `protoc`,
//! so that nothing has to be installed.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// What a repeated field is labelled by in a descriptor, and the types of what has a length: `string`, `message`, `bytes`.
const REPEATED: i32 = 3;
const STRING: i32 = 9;
const MESSAGE: i32 = 11;
const BYTES: i32 = 12;

/// A message of the protocol.
struct Shape {
    name: String,
    /// Whether it is an entry of a map, which has no type of its own.
    is_entry: bool,
    fields: Vec<Field>,
}

/// A field of a message.
struct Field {
    number: i32,
    label: i32,
    kind: i32,
    /// The message that it is, where it is one.
    of: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["store", "objects", "admin", "history"].map(|name| format!("proto/forebay/v1/{name}.proto"));
    let files = protox::compile(files, ["proto"])?;
    let mut messages = Vec::new();
    for message in files.file.iter().flat_map(|file| &file.message_type) {
        messages.push((message.name().to_owned(), message, false));
        for entry in &message.nested_type {
            if entry.options.as_ref().and_then(|options| options.map_entry) != Some(true) {
                return Err(format!("{} in {} is not foreseen", entry.name(), message.name()).into());
            }
            messages.push((format!("{}.{}", message.name(), entry.name()), entry, true));
        }
    }
    let shapes = messages.into_iter().map(|(name, message, is_entry)| {
        let fields = message.field.iter().map(|field| Field {
            number: field.number(),
            label: field.label.unwrap_or_default(),
            kind: field.r#type.unwrap_or_default(),
            of: field.type_name().trim_start_matches(".forebay.v1.").to_owned(),
        });
        Shape { name, is_entry, fields: fields.collect() }
    });
    let shapes = written(&shapes.collect::<Vec<_>>())?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("shapes.rs"), shapes)?;
    tonic_prost_build::configure().bytes(".").codec_path("crate::wire::BoundedCodec").compile_fds(files)?;
    Ok(())
}

/// The shapes as they are compiled.
fn written(shapes: &[Shape]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for (at, Shape { name, is_entry, fields }) in shapes.iter().enumerate() {
        let bytes = match is_entry {
            true => "ENTRY_BYTES".to_owned(),
            false => format!("size_of::<proto::{name}>()"),
        };
        let fields = fields.iter().map(|field| content(shapes, field)).collect::<Result<String, _>>()?;
        writeln!(
            text,
            "static SHAPE_{at}: Shape = Shape {{ name: \"{name}\", bytes: {bytes}, fields: &[{fields}] }};"
        )?;
        if !is_entry {
            writeln!(
                text,
                "impl Weighed for proto::{name} {{ const SHAPE: &'static Shape = &SHAPE_{at}; }}"
            )?;
        }
    }
    Ok(text)
}

/// A field that weighs something else than a number or a text does; nothing for another.
fn content(shapes: &[Shape], field: &Field) -> Result<String, Box<dyn Error>> {
    let (number, is_repeated) = (field.number, field.label == REPEATED);
    let content = match field.kind {
        MESSAGE => {
            let at = shapes.iter().position(|shape| shape.name == field.of);
            let at = at.ok_or_else(|| format!("{:?} is no message of the protocol", field.of))?;
            format!("Content::{}(&SHAPE_{at})", if is_repeated { "Messages" } else { "Message" })
        }
        STRING | BYTES => return Ok(String::new()),
        _ if is_repeated => "Content::Numbers".to_owned(),
        _ => return Ok(String::new()),
    };
    Ok(format!("({number}, {content}), "))
}
