//! SQL: a question, and a wait for its answer that Ctrl-C ends.
//!
//! The question runs on a thread of its own, for computing it seldom pauses and the thread that asks has to look for signals.
//! A question that is given up ends at its next pause, or computes to its end for nobody; it holds the store until then.

use forebay::query::{Answer, Session};
use tokio::sync::oneshot;

use crate::failure::{Failure, Result};
use crate::wait::block_on;

/// What the main thread of a process has: planning goes as deep as its statement.
const STACK_BYTES: usize = 8 << 20;

/// Answers one statement. To be called without the interpreter's lock.
pub(crate) fn ask(session: &Session, statement: &str) -> Result<Answer> {
    let answer = block_on(question(session, statement)?, None)?;
    answer.unwrap_or_else(|| Err(lost()))
}

/// Asks, and gives what the answer comes by. Dropping that gives the question up.
pub(crate) fn question(
    session: &Session,
    statement: &str,
) -> Result<impl Future<Output = Result<Answer>> + Send + 'static> {
    let (session, statement) = (session.clone(), statement.to_owned());
    let (asking, given_up) = oneshot::channel::<()>();
    let (give, given) = oneshot::channel();
    let compute = move || {
        // Nobody is there to take it when the question was given up.
        let _ = give.send(answer(&session, &statement, given_up));
    };
    let thread = std::thread::Builder::new().name("question".into()).stack_size(STACK_BYTES).spawn(compute);
    thread.map_err(|error| no_room(&error))?;
    Ok(async move {
        let answer = given.await.unwrap_or_else(|_| Err(lost()));
        drop(asking);
        answer
    })
}

fn lost() -> Failure {
    let message = "the question ended without an answer; this is a bug of forebay, please report it";
    Failure::Here("Error", message.to_owned())
}

fn answer(session: &Session, statement: &str, given_up: oneshot::Receiver<()>) -> Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| no_room(&error))?.block_on(async {
        tokio::select! {
            answer = session.sql(statement) => Ok(answer?),
            _ = given_up => Err(Failure::Here("Error", "the question was given up".to_owned())),
        }
    })
}

fn no_room(error: &std::io::Error) -> Failure {
    Failure::Here("CapacityError", format!("no thread for the question: {error}"))
}
