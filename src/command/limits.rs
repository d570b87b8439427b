//! What clients of `forebay serve` may take, and for how long.

use std::time::Duration;

use clap::Args;
use forebay::server::Builder;

/// Limits of those who write, claim and train, at --grpc and --socket, and of those who read. What is not said is as the server's builder has it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArguments {
    /// The most connections of clients at the same time [default: 20000]
    #[arg(long, value_name = "COUNT")]
    connections_max: Option<usize>,
    /// The most connections over TCP from one host, at each of gRPC, HTTP and Flight SQL [default: as many as there may be]
    #[arg(long, value_name = "COUNT")]
    connections_per_host_max: Option<usize>,
    /// The most clients at the same time [default: 20000]
    #[arg(long, value_name = "COUNT")]
    sessions_max: Option<usize>,
    /// The most calls under way on one connection [default: 1024]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..))]
    calls_per_connection_max: Option<u32>,
    /// The largest message of a client, 64 MiB at most [default: 67108864]
    #[arg(long, value_name = "BYTES")]
    message_bytes_max: Option<usize>,
    /// The most that one write in frames may bring; 0 takes none of them [default: 268435456]
    #[arg(long, value_name = "BYTES")]
    bulk_bytes_max: Option<u64>,
    /// The most memory in which clients of this machine hand over their values, of all together [default: 1073741824]
    #[arg(long, value_name = "BYTES")]
    slab_bytes_max: Option<u64>,
    /// The most connections of HTTP, and of Flight SQL, at the same time [default: 1000]
    #[arg(long, value_name = "COUNT")]
    reader_connections_max: Option<usize>,
    /// How long a connection of HTTP or Flight SQL may carry nothing before it is closed [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    reader_idle_time_max: Option<Duration>,
    /// How long a connection may be there before somebody is let in over it [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    first_call_time_max: Option<Duration>,
    /// How long a client may take to send a mebibyte, or to take one [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    piece_time_max: Option<Duration>,
    /// How often a client that says nothing is asked whether it is there, and how long it has to answer before its connection is closed [default: 20]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    alive_time_max: Option<Duration>,
    /// How long what a client holds is kept for it after its connection broke [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    session_grace: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl LimitArguments {
    pub(super) fn apply(&self, builder: Builder) -> Builder {
        let builder = self.connections_max.into_iter().fold(builder, Builder::connections_max);
        let builder =
            self.connections_per_host_max.into_iter().fold(builder, Builder::connections_per_host_max);
        let builder = self.sessions_max.into_iter().fold(builder, Builder::sessions_max);
        let builder =
            self.calls_per_connection_max.into_iter().fold(builder, Builder::calls_per_connection_max);
        let builder = self.message_bytes_max.into_iter().fold(builder, Builder::message_bytes_max);
        let builder = self.bulk_bytes_max.into_iter().fold(builder, Builder::bulk_bytes_max);
        let builder = self.slab_bytes_max.into_iter().fold(builder, Builder::slab_bytes_max);
        let builder = self.reader_connections_max.into_iter().fold(builder, Builder::reader_connections_max);
        let builder = self.reader_idle_time_max.into_iter().fold(builder, Builder::reader_idle_time_max);
        let builder = self.first_call_time_max.into_iter().fold(builder, Builder::first_call_time_max);
        let builder = self.piece_time_max.into_iter().fold(builder, Builder::piece_time_max);
        let builder = self.alive_time_max.into_iter().fold(builder, Builder::alive_time_max);
        self.session_grace.into_iter().fold(builder, Builder::session_grace)
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;
    use std::time::Duration;

    #[test]
    fn times_are_seconds_and_parts_of_them() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "ten", "-1", "inf", "NaN"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
