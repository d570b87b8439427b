//! Tickets of statements: a number that names the query for whoever wants to end it, and the statement itself.
//!
//! The server keeps nothing for a ticket, so a client that never comes back costs nothing.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_flight::sql::TicketStatementQuery;
use tonic::Status;

const NUMBER_BYTES: usize = 16;

static NEXT: AtomicU64 = AtomicU64::new(0);
/// Makes numbers of this process differ from those of another.
static LIFE: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(1));

/// A ticket for the statement, with a number of its own.
pub(crate) fn new(sql: &str) -> TicketStatementQuery {
    let number = [LIFE.to_le_bytes(), NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes()].concat();
    TicketStatementQuery { statement_handle: [&number, sql.as_bytes()].concat().into() }
}

/// The number and the statement of a ticket.
pub(crate) fn read(ticket: &TicketStatementQuery) -> Result<(&[u8], &str), Status> {
    let parts = ticket.statement_handle.split_at_checked(NUMBER_BYTES);
    let parts = parts.and_then(|(number, sql)| Some((number, std::str::from_utf8(sql).ok()?)));
    parts.ok_or_else(|| {
        Status::invalid_argument("the ticket is none of this server; ask for the statement again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_gives_back_its_statement_under_a_number_of_its_own() {
        let (one, other) = (new("SELECT 1"), new("SELECT 1"));
        assert_eq!(read(&one).ok().map(|(_, sql)| sql), Some("SELECT 1"));
        assert_ne!(one, other);
        for bytes in [&b""[..], &[0; 15], &[255; 40]] {
            let status = read(&TicketStatementQuery { statement_handle: bytes.to_vec().into() }).map(|_| ());
            assert_eq!(status.map_err(|status| status.code()), Err(tonic::Code::InvalidArgument));
        }
    }
}
