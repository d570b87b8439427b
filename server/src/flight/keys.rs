//! The schemas of answers about keys, to the letter of the standard; the library has no builders for them.
//!
//! Tables declare no keys: a sample id comes again in every version and attempt, and `parent` may name a row that is gone. So
//! the answers are empty, which drivers take, where a refusal would fail all that they ask of a table.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

fn text(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

/// Of `CommandGetPrimaryKeys`.
pub(crate) fn primary() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        text("key_name", true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// Of `CommandGetExportedKeys`, `CommandGetImportedKeys` and `CommandGetCrossReference`.
pub(crate) fn foreign() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}
