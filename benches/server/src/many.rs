//! What a server bears: connections that are held by other processes, and subscribers who want the same rows.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout};

use forebay_benches::Outcome;

use crate::crowd::{Crowd, feed, memory_bytes, spread};
use crate::{World, spawn_with_words};

/// What a subscriber gets at least and at most, of a fair share.
pub(crate) const FAIR: [f64; 2] = [0.2, 5.0];

/// How large the crowd is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Connections that do nothing.
    pub connections: usize,
    /// Subscribers to one consumer.
    pub subscribers: usize,
    /// Rows for each subscriber.
    pub share: usize,
    /// Processes that have the connections, and as many that have the subscribers.
    pub processes: usize,
}

impl Default for Size {
    fn default() -> Self {
        Size { connections: 10_000, subscribers: 2_000, share: 20, processes: 4 }
    }
}

impl Size {
    /// Only to see that it works.
    pub fn quick() -> Self {
        Size { connections: 200, subscribers: 50, share: 10, processes: 2 }
    }
}

/// A process with a part of the crowd.
struct Group {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Group {
    fn begin(what: &str, address: &str, members: usize) -> Outcome<Self> {
        let mut child = spawn_with_words(what, address, members)?;
        let says = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Group { child, says })
    }

    fn hear(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.says.read_line(&mut line)? {
            0 => Err("a process of the crowd ended".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// Asks for what it has to say, and lets it end.
    fn ask(mut self) -> Outcome<String> {
        self.child.stdin.take().ok_or("no input")?.write_all(b"tell\n")?;
        let said = self.hear()?;
        self.child.wait()?;
        Ok(said)
    }
}

fn groups(what: &str, address: &str, members: usize, processes: usize) -> Outcome<Vec<Group>> {
    let of = |at: usize| members / processes + usize::from(at < members % processes);
    let mut groups =
        (0..processes).map(|at| Group::begin(what, address, of(at))).collect::<Outcome<Vec<_>>>()?;
    groups.iter_mut().try_for_each(|group| group.hear().map(drop))?; // all of them are there
    Ok(groups)
}

/// Measures, and prints a line for each number.
///
/// # Errors
/// When a process or a connection fails.
pub fn many(size: &Size) -> Outcome<()> {
    let Size { connections, subscribers, share, processes } = *size;
    let world = World::new()?;
    let before = memory_bytes()?;
    let held = groups("hold", &world.tcp(), connections, processes)?;
    let each = (memory_bytes()? - before) / connections as f64 / 1024.0;
    println!(
        "{connections} connections held, each with a session: {each:.1} KiB of the server's memory each"
    );
    let mut takers = groups("take", &world.tcp(), subscribers, processes)?;
    let fed = feed(&world.store, subscribers, share)?.as_secs_f64();
    let took = takers.drain(..).map(Group::ask).collect::<Outcome<Vec<_>>>()?.join(" ");
    let took = took.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let [fewest, most] = spread(&took);
    let rows = subscribers * share;
    println!(
        "{subscribers} subscribers to one consumer beside them: {rows} rows in {fed:.1} s, {:.0} a second; \
         the fewest that anybody took {fewest:.2}, the most {most:.2} of a fair share",
        rows as f64 / fed
    );
    if took.len() != subscribers || took.iter().sum::<u64>() != rows as u64 {
        return Err(format!("{} subscribers took {} rows", took.len(), took.iter().sum::<u64>()).into());
    }
    if fewest < FAIR[0] || most > FAIR[1] {
        return Err(format!("shares from {fewest:.2} to {most:.2} are not within {FAIR:?}").into());
    }
    for group in held {
        group.ask()?;
    }
    println!("all connections answered afterwards");
    Ok(())
}

/// A process of the crowd: says that it is there, and tells what there is when it is asked.
pub(crate) fn group(subscribes: bool, address: &str, members: usize) -> Outcome<()> {
    let mut crowd = Crowd::enter(address, members)?;
    if subscribes {
        crowd.subscribe();
    }
    say("there")?;
    std::io::stdin().read_line(&mut String::new())?;
    if subscribes {
        return say(&crowd.took().iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    crowd.is_there()?;
    say("there")
}

fn say(line: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
