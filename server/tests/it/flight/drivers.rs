//! What drivers ask of a server beside statements.

use super::*;

#[test]
fn drivers_see_catalogs_schemas_tables_and_columns() {
    with(Server::builder(), async |served, mut client| {
        let schema = forebay_store::Schema::new().data("tokens", StoreType::list(Element::Int32));
        served.store.create_table("checker", schema).unwrap();
        let info = client.get_catalogs().await.unwrap();
        let catalogs = rows(&mut client, info).await.unwrap();
        assert_eq!(texts(&catalogs, 0), ["forebay"]);
        assert_eq!(
            catalogs.schema().fields()[0].as_ref(),
            &Field::new("catalog_name", DataType::Utf8, false)
        );
        let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
        let schemas = rows(&mut client, info).await.unwrap();
        assert_eq!(texts(&schemas, 1), ["information_schema", "public", "system"]);
        let nullable: Vec<bool> = schemas.schema().fields().iter().map(|field| field.is_nullable()).collect();
        assert_eq!(nullable, [true, false]);
        let info = client.get_table_types().await.unwrap();
        assert_eq!(texts(&rows(&mut client, info).await.unwrap(), 0), ["SYSTEM TABLE", "TABLE"]);
        let tables = async |client: &mut Client, command| {
            let info = client.get_tables(command).await.unwrap();
            rows(client, info).await.unwrap()
        };
        let of_agents = CommandGetTables {
            db_schema_filter_pattern: Some("pub%".to_owned()),
            table_types: vec!["TABLE".to_owned()],
            include_schema: true,
            ..Default::default()
        };
        let found = tables(&mut client, of_agents).await;
        assert_eq!(texts(&found, 2), ["checker", "solver"]);
        let encoded = arrow_flight::IpcMessage(found.column(4).as_binary::<i32>().value(0).to_vec().into());
        let columns = Schema::try_from(encoded).unwrap();
        assert!(matches!(columns.field_with_name("tokens").unwrap().data_type(), DataType::List(_)));
        assert_eq!(columns.field_with_name("sample_id").unwrap().data_type(), &DataType::Utf8);
        let one =
            CommandGetTables { table_name_filter_pattern: Some("claim_".to_owned()), ..Default::default() };
        assert_eq!(texts(&tables(&mut client, one).await, 2), ["claims"]);
        let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo::default()).await.unwrap();
        assert!(texts(&rows(&mut client, info).await.unwrap(), 0).contains(&"VARCHAR".to_owned()));
    });
}

#[test]
fn drivers_are_told_what_the_server_is_and_can() {
    fn text(value: &dyn Array) -> String {
        value.as_string::<i32>().value(0).to_owned()
    }
    fn yes(value: &dyn Array) -> String {
        value.as_boolean().value(0).to_string()
    }
    fn number(value: &dyn Array) -> String {
        value.as_primitive::<Int32Type>().value(0).to_string()
    }
    type Shown = fn(&dyn Array) -> String;
    let expected: [(SqlInfo, Shown, &str); 11] = [
        (SqlInfo::FlightSqlServerName, text, "Forebay"),
        (SqlInfo::FlightSqlServerVersion, text, env!("CARGO_PKG_VERSION")),
        (SqlInfo::SqlIdentifierQuoteChar, text, "\""),
        (SqlInfo::FlightSqlServerReadOnly, yes, "true"),
        (SqlInfo::FlightSqlServerSql, yes, "true"),
        (SqlInfo::FlightSqlServerSubstrait, yes, "false"),
        (SqlInfo::FlightSqlServerCancel, yes, "true"),
        (SqlInfo::SqlDdlTable, yes, "false"),
        (SqlInfo::FlightSqlServerTransaction, number, "0"),
        (SqlInfo::FlightSqlServerStatementTimeout, number, "3600000"),
        (SqlInfo::FlightSqlServerTransactionTimeout, number, "0"),
    ];
    with(Server::builder(), async |_, mut client| {
        for (info, shown, value) in expected {
            let asked = client.get_sql_info(vec![info]).await.unwrap();
            let found = rows(&mut client, asked).await.unwrap();
            assert_eq!(found.column(0).as_primitive::<UInt32Type>().values(), &[info as u32]);
            assert_eq!(shown(&*found.column(1).as_union().value(0)), value, "{info:?}");
        }
        let all = client.get_sql_info(Vec::<SqlInfo>::new()).await.unwrap();
        assert_eq!(rows(&mut client, all).await.unwrap().num_rows(), 14);
    });
}

#[test]
fn there_are_no_keys_and_drivers_are_told_so_in_the_right_columns() {
    with(Server::builder(), async |_, mut client| {
        let (primary, foreign) =
            (CommandGetPrimaryKeys { table: "solver".to_owned(), ..Default::default() }, "solver".to_owned());
        let infos = [
            client.get_primary_keys(primary).await.unwrap(),
            client
                .get_exported_keys(CommandGetExportedKeys { table: foreign.clone(), ..Default::default() })
                .await
                .unwrap(),
            client
                .get_imported_keys(CommandGetImportedKeys { table: foreign.clone(), ..Default::default() })
                .await
                .unwrap(),
            client
                .get_cross_reference(CommandGetCrossReference {
                    pk_table: foreign.clone(),
                    fk_table: foreign,
                    ..Default::default()
                })
                .await
                .unwrap(),
        ];
        let of_foreign = "pk_catalog_name? pk_db_schema_name? pk_table_name pk_column_name fk_catalog_name? \
                          fk_db_schema_name? fk_table_name fk_column_name key_sequence fk_key_name? pk_key_name? \
                          update_rule delete_rule";
        let of_primary = "catalog_name? db_schema_name? table_name column_name key_name? key_sequence";
        for (info, columns) in infos.into_iter().zip([of_primary, of_foreign, of_foreign, of_foreign]) {
            let found = rows(&mut client, info).await.unwrap();
            let shown = |field: &Arc<Field>| {
                format!("{}{}", field.name(), if field.is_nullable() { "?" } else { "" })
            };
            assert_eq!(found.schema().fields().iter().map(shown).collect::<Vec<_>>().join(" "), columns);
            assert_eq!(found.num_rows(), 0);
        }
    });
}
