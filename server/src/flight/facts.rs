//! What a driver asks of a server before it asks a query: what it is, what it can do, which types it has.

use arrow_flight::error::Result;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlSupportedTransaction, XdbcDataType, XdbcDatetimeSubcode,
};

use super::statements::IDLE_MAX;

/// The answers, made once.
pub(crate) struct Facts {
    pub(crate) server: SqlInfoData,
    pub(crate) types: XdbcTypeInfoData,
}

impl Facts {
    pub(crate) fn new() -> Result<Self> {
        Ok(Facts { server: server()?, types: types()? })
    }
}

fn server() -> Result<SqlInfoData> {
    let mut facts = SqlInfoDataBuilder::new();
    facts.append(SqlInfo::FlightSqlServerName, "Forebay");
    facts.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    facts.append(SqlInfo::FlightSqlServerArrowVersion, "1.3"); // of the format, not of a library
    facts.append(SqlInfo::FlightSqlServerReadOnly, true);
    facts.append(SqlInfo::FlightSqlServerSql, true);
    facts.append(SqlInfo::FlightSqlServerSubstrait, false);
    facts.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    facts.append(SqlInfo::FlightSqlServerCancel, true);
    // Of the handles of prepared statements, in milliseconds since one was last asked.
    let idle = i32::try_from(IDLE_MAX.as_millis()).unwrap_or(i32::MAX);
    facts.append(SqlInfo::FlightSqlServerStatementTimeout, idle);
    facts.append(SqlInfo::FlightSqlServerTransactionTimeout, 0);
    for writes in [SqlInfo::SqlDdlCatalog, SqlInfo::SqlDdlSchema, SqlInfo::SqlDdlTable] {
        facts.append(writes, false);
    }
    facts.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    facts.build()
}

/// The types of columns, as JDBC and ODBC name them.
fn types() -> Result<XdbcTypeInfoData> {
    use XdbcDataType as T;
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, column_size, quote, radix) in [
        ("BOOLEAN", T::XdbcBit, 1, None, None),
        ("TINYINT", T::XdbcTinyint, 3, None, Some(10)),
        ("SMALLINT", T::XdbcSmallint, 5, None, Some(10)),
        ("INTEGER", T::XdbcInteger, 10, None, Some(10)),
        ("BIGINT", T::XdbcBigint, 19, None, Some(10)),
        ("REAL", T::XdbcReal, 24, None, Some(2)),
        ("DOUBLE", T::XdbcDouble, 53, None, Some(2)),
        ("DECIMAL", T::XdbcDecimal, 38, None, Some(10)),
        ("VARCHAR", T::XdbcVarchar, i32::MAX, Some("'"), None),
        ("VARBINARY", T::XdbcVarbinary, i32::MAX, Some("X'"), None),
        ("DATE", T::XdbcDate, 10, Some("DATE '"), None),
        ("TIMESTAMP", T::XdbcTimestamp, 26, Some("TIMESTAMP '"), None),
    ] {
        types.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type,
            column_size: Some(column_size),
            literal_prefix: quote.map(str::to_owned),
            literal_suffix: quote.map(|_| "'".to_owned()),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: data_type == T::XdbcVarchar,
            searchable: Searchable::Full,
            unsigned_attribute: radix.map(|_| false),
            auto_increment: Some(false),
            local_type_name: Some(name.to_owned()),
            sql_data_type: data_type,
            datetime_subcode: match data_type {
                T::XdbcDate => Some(XdbcDatetimeSubcode::XdbcSubcodeYear), // 1, which is the date of ODBC
                T::XdbcTimestamp => Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
                _ => None,
            },
            num_prec_radix: radix,
            ..XdbcTypeInfo::default()
        });
    }
    types.build()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "the tables are made of constants")]

    use super::*;

    #[test]
    fn the_tables_are_there() {
        let facts = Facts::new().unwrap();
        assert_eq!(facts.server.record_batch([3]).unwrap().num_rows(), 1);
        assert_eq!(facts.types.record_batch(None).unwrap().num_rows(), 12);
        assert_eq!(facts.types.record_batch(XdbcDataType::XdbcVarchar as i32).unwrap().num_rows(), 1);
    }
}
