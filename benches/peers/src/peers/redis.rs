//! Redis: a server of its own process, over a unix socket, one pipeline a stage.
//!
//! A row is a hash. A batch is one `MULTI`, so that it is whole or not there and its append-only file is synced once.
//! Rows that are ready go to a stream that a consumer group reads: `XREADGROUP` blocks until there are some and remembers
//! who has them, `XACK` lets them go.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{Client, Connection, ConnectionLike, FromRedisValue, TypedCommands, Value, pipe};

use crate::Outcome;
use crate::columns::{Buffers, Columns};
use crate::peer::{Level, Native, PATIENCE, Peer, Taker, Writer};
use crate::workload::{BATCH, MICRO_BATCH, Workload};

pub(crate) const PEER: Native = Native {
    name: "Redis",
    version,
    levels: &[Level::Memory, Level::Logged, Level::Synced],
    note: |level| match level {
        Level::Memory => "no append-only file; all rows stay in memory; leases by consumer group",
        Level::Logged => "appendfsync everysec; all rows stay in memory; leases by consumer group",
        Level::Synced => {
            "appendfsync always, for takes too; all rows stay in memory; leases by consumer group"
        }
    },
    open: |workload, directory, level| Ok(Box::new(Redis::open(workload, directory, level)?)),
};

const STREAM: &str = "ready";
const GROUP: &str = "trainer";
const FIELDS: [&str; 4] = ["prompt", "response", "logprobs", "reward"];

fn version() -> Outcome<String> {
    let told = Command::new("redis-server").arg("--version").output()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    Ok(told.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("unknown").to_owned())
}

struct Redis<'a> {
    workload: &'a Workload,
    client: Client,
    server: Child,
}

impl<'a> Redis<'a> {
    fn open(workload: &'a Workload, directory: &Path, level: Level) -> Outcome<Self> {
        let socket = directory.join("redis.sock");
        let (append_only, sync) = match level {
            Level::Memory => ("no", "no"),
            Level::Logged => ("yes", "everysec"),
            Level::Synced => ("yes", "always"),
        };
        let server = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--loglevel",
                "warning",
                "--auto-aof-rewrite-percentage",
                "0",
            ])
            .args(["--appendonly", append_only, "--appendfsync", sync])
            .arg("--dir")
            .arg(directory)
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server: {error} (Debian's package is redis-server)"))?;
        let client = Client::open(format!("redis+unix://{}", socket.display()))?;
        let redis = Redis { workload, client, server }; // from here on the server is ended with it
        let mut connection = redis.connect()?;
        connection.xgroup_create_mkstream(STREAM, GROUP, "$")?;
        Ok(redis)
    }

    /// Connects, which takes as long as the server needs to come up.
    fn connect(&self) -> Outcome<Connection> {
        let start = Instant::now();
        loop {
            match self.client.get_connection() {
                Ok(connection) => return Ok(connection),
                Err(error) if start.elapsed() > Duration::from_secs(10) => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Redis<'_> {
    fn drop(&mut self) {
        let ended = self.server.kill().and_then(|()| self.server.wait());
        if let Err(error) = ended {
            eprintln!("redis-server may still run: {error}");
        }
    }
}

impl Peer for Redis<'_> {
    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(In { workload: self.workload, connection: self.connect()? }))
    }

    fn taker(&self) -> Outcome<Box<dyn Taker + '_>> {
        Ok(Box::new(Out { connection: self.connect()?, buffers: Buffers::default() }))
    }
}

struct In<'a> {
    workload: &'a Workload,
    connection: Connection,
}

impl Writer for In<'_> {
    fn write(&mut self, first: usize) -> Outcome<()> {
        let samples = || (first..first + BATCH).map(|row| (row, self.workload.sample(row)));
        let mut stage = pipe();
        stage.atomic();
        for (row, sample) in samples() {
            stage.hset(row, "prompt", &sample.prompt[..]).ignore();
        }
        stage.exec(&mut self.connection)?;
        let mut stage = pipe();
        stage.atomic();
        for (row, sample) in samples() {
            let fields = [("response", &sample.response[..]), ("logprobs", &sample.logprobs[..])];
            stage.hset_multiple(row, &fields).ignore();
        }
        stage.exec(&mut self.connection)?;
        let mut stage = pipe();
        stage.atomic();
        for (row, sample) in samples() {
            stage.hset(row, "reward", &sample.reward.to_le_bytes()[..]).ignore();
            stage.xadd(STREAM, "*", &[("row", row)]).ignore();
        }
        stage.exec(&mut self.connection)?;
        Ok(())
    }
}

struct Out {
    connection: Connection,
    buffers: Buffers,
}

impl Taker for Out {
    fn take(&mut self, read: &mut dyn FnMut(Columns<'_>)) -> Outcome<usize> {
        let options = StreamReadOptions::default().group(GROUP, "one").count(MICRO_BATCH);
        let options = options.block(PATIENCE.as_millis() as usize);
        let reply: Option<StreamReadReply> = self.connection.xread_options(&[STREAM], &[">"], &options)?;
        let Some(stream) = reply.and_then(|reply| reply.keys.into_iter().next()) else { return Ok(0) };
        let mut ask = pipe();
        let (mut rows, mut entries) = (Vec::new(), Vec::new());
        for entry in stream.ids {
            let row: u64 = entry.get("row").ok_or("an entry without a row")?;
            ask.cmd("HMGET").arg(row).arg(&FIELDS[..]);
            rows.push(row);
            entries.push(entry.id);
        }
        let values = self.connection.req_packed_commands(&ask.get_packed_pipeline(), 0, rows.len())?;
        self.buffers.clear();
        for (row, values) in rows.into_iter().zip(values) {
            add(&mut self.buffers, row, values)?;
        }
        read(self.buffers.columns());
        self.connection.xack(STREAM, GROUP, &entries)?;
        Ok(entries.len())
    }
}

fn add(buffers: &mut Buffers, row: u64, values: Value) -> Outcome<()> {
    let values = Vec::<Value>::from_redis_value(values)?;
    let [
        Value::BulkString(prompt),
        Value::BulkString(response),
        Value::BulkString(logprobs),
        Value::BulkString(reward),
    ] = &values[..]
    else {
        return Err(format!("row {row} is ready and has no value").into());
    };
    buffers.push(row, [prompt, response, logprobs], f32::from_le_bytes(reward[..].try_into()?));
    Ok(())
}
