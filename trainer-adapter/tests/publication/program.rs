//! A process that publishes and gets as it is told, a line a call, and dies at a step where it is told to.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use forebay_trainer_adapter::device::StandInDevice;
use forebay_trainer_adapter::publication::*;
use rustix::process::{Signal, getpid, kill_process};

use crate::state::*;

const FOLDER: &str = "FOREBAY_TEST_FOLDER";
/// At which step the process dies, and how many times it passes there before.
pub(crate) const DIES: &str = "FOREBAY_TEST_DIES";
const AFTER: &str = "FOREBAY_TEST_DIES_AFTER";
/// What the test harness says stands beside it.
const MARK: &str = "forebay> ";

/// Dies where the environment says so.
fn observer() -> StepObserver {
    let Ok(at) = std::env::var(DIES) else { return StepObserver::default() };
    let after: usize = std::env::var(AFTER).map_or(0, |after| after.parse().unwrap());
    let passed = std::sync::atomic::AtomicUsize::new(0);
    StepObserver::new(move |step| {
        let is_there = format!("{step:?}") == at;
        if is_there && passed.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == after {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    })
}

fn say(text: &str) {
    println!("\n{MARK}{text}");
    std::io::stdout().flush().unwrap();
}

/// The name of the error's variant.
fn named(error: &PublicationError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(']).next().unwrap().to_owned()
}

fn get(reader: &Reader<StandInDevice>, own: &StandInDevice, words: &[&str]) -> String {
    let which = match words[1..] {
        ["latest"] => Which::Latest,
        ["exact", version] => Which::Exact(version.parse().unwrap()),
        _ => panic!("{words:?}"),
    };
    match reader.get(&Wanted::new(words[0], which)) {
        Ok(got) => format!("got {}", checked(own, &got)),
        Err(error) => format!("error {}", named(&error)),
    }
}

#[test]
#[ignore = "is the program of another process"]
fn program() {
    let folder = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let own = device(std::process::id().into());
    let options = PublisherOptions::default().observer(observer());
    let publisher = Publisher::open(own.clone(), &folder, options).unwrap();
    let options = ReaderOptions::default().observer(observer());
    let reader = Reader::open(own.clone(), &folder, options).unwrap();
    say("ready");
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["publish", version] => match publish(&publisher, &own, version.parse().unwrap()) {
                Ok(()) => say(&format!("published {version}")),
                Err(error) => say(&format!("error {}", named(&error))),
            },
            ["in_place", version] => {
                let number = version.parse().unwrap();
                let buffers = [0, 1].map(|class| shared(&own, &values(number, class, LENGTHS[class])));
                let parts: Vec<_> = (0..2).map(|at| part(CLASSES[at], &buffers[at], LENGTHS[at])).collect();
                let barrier = publisher.in_place("solver", number, LAYOUT, &parts).unwrap();
                say(&format!("in place {version}"));
                assert_eq!(lines.next().as_deref(), Some("end"));
                barrier.end().unwrap();
                say("ended");
            }
            ["get", ..] => say(&get(&reader, &own, &words[1..])),
            _ => panic!("{line}"),
        }
    }
}

/// Another process.
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(folder: &Path, variables: &[(&str, String)]) -> Self {
        Self::start_as(folder, variables, None)
    }

    /// The same as another user.
    pub(crate) fn start_as(folder: &Path, variables: &[(&str, String)], user: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "program::program", "--ignored", "--nocapture"]).env(FOLDER, folder);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if let Some(user) = user {
            command.uid(user);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut program = Self { child, input, output: BufReader::new(output).lines() };
        assert_eq!(program.said().as_deref(), Some("ready"));
        program
    }

    /// One that dies at a step, after it has passed there so often.
    pub(crate) fn dying(folder: &Path, step: Step, after: usize) -> Self {
        Self::start(folder, &[(DIES, format!("{step:?}")), (AFTER, after.to_string())])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        // In one piece: it may end before a second one is written.
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// What it says next; nothing when it has ended.
    pub(crate) fn said(&mut self) -> Option<String> {
        let lines = self.output.by_ref().map_while(Result::ok);
        lines.filter_map(|line| line.strip_prefix(MARK).map(str::to_owned)).next()
    }

    pub(crate) fn asks(&mut self, line: &str, expected: &str) {
        self.tell(line);
        assert_eq!(self.said().as_deref(), Some(expected), "{line}");
    }

    /// It was killed, and has ended for good.
    pub(crate) fn is_killed(&mut self) {
        assert_eq!(self.said(), None);
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
