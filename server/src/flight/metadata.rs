//! The commands that ask what there is: catalogs, schemas, tables, their types. Keys are asked for, too, and there are none.
//!
//! The schemas of the answers are the standard's to the letter, because drivers compare them: the library's builders make
//! them.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use arrow_flight::sql::Command;
use forebay_query::{Session, TableInfo, TableKind};
use tonic::Status;

use super::facts::Facts;
use super::{keys, status, wire};

/// The answer to a command about metadata; none for other commands.
pub(crate) async fn answer(
    session: &Session,
    facts: &Facts,
    command: Command,
) -> Result<Option<RecordBatch>, Status> {
    let answer = match command {
        Command::CommandGetCatalogs(command) => {
            let mut answer = command.into_builder();
            let catalogs: BTreeSet<String> =
                tables(session).await?.into_iter().map(|table| table.catalog).collect();
            catalogs.into_iter().for_each(|catalog| answer.append(catalog));
            answer.build()
        }
        Command::CommandGetDbSchemas(command) => {
            let mut answer = command.into_builder();
            let tables = tables(session).await?;
            let schemas: BTreeSet<_> = tables.iter().map(|table| (&table.catalog, &table.schema)).collect();
            schemas.into_iter().for_each(|(catalog, schema)| answer.append(catalog, schema));
            answer.build()
        }
        Command::CommandGetTables(command) => {
            let mut answer = command.into_builder();
            for TableInfo { catalog, schema, name, kind, columns } in tables(session).await? {
                let columns = wire::schema(&columns);
                answer.append(catalog, schema, name, kind.as_str(), &columns).map_err(status::internal)?;
            }
            answer.build()
        }
        Command::CommandGetTableTypes(command) => {
            let mut answer = command.into_builder();
            TableKind::ALL.into_iter().for_each(|kind| answer.append(kind.as_str()));
            answer.build()
        }
        Command::CommandGetPrimaryKeys(_) => Ok(RecordBatch::new_empty(keys::primary())),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => Ok(RecordBatch::new_empty(keys::foreign())),
        Command::CommandGetSqlInfo(command) => command.into_builder(&facts.server).build(),
        Command::CommandGetXdbcTypeInfo(command) => command.into_builder(&facts.types).build(),
        _ => return Ok(None),
    };
    answer.map(Some).map_err(status::internal)
}

async fn tables(session: &Session) -> Result<Vec<TableInfo>, Status> {
    session.tables().await.map_err(|error| status::of(&error))
}
