//! The rollout worker's loop.
//!
//! One thread owns a worker. Any number of workers share the tasks; a claim belongs to one of them at a time. A worker
//! that has nothing to do waits on the *generate* task and is woken by the write that brings it a prompt.
//!
//! Rewards come first: they are quick, and a rewarded row may be what a trainer or the next agent waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_pipeline::route::Router;
use forebay_store::{
    Claim, Consumer, ConsumerHandle, GroupBy, MicroBatch, SampleId, Store, Table, Wait, WriteBatch,
};

use crate::columns::{
    LOGPROBS, NEXT_AGENT_ID, PROMPT, RESPONSE, RESPONSE_TEXT, REWARD, numbers, texts, token_lists,
};
use crate::environment::{Environment, Observer, Turn};
use crate::error::{Cause, Failure, Result};
use crate::generator::{Generator, Request, Response};
use crate::writer::insert_token;

/// The tasks of a run's rollout workers.
#[derive(Clone, Debug)]
pub struct RolloutTasks {
    generate: ConsumerHandle,
    reward: ConsumerHandle,
    /// How many rows a worker takes at a time.
    rows: u32,
    stopped: Arc<AtomicBool>,
}

impl RolloutTasks {
    /// Declares the tasks over the tables of all agents, or finds them where an earlier process did.
    ///
    /// *generate* takes groups of `group_size` rows as soon as they have their prompts, so that a prompt is read once a
    /// group; *reward* takes rows as soon as they have a response.
    pub fn open(store: &Store, tables: &[&str], group_size: u32) -> Result<Self> {
        let generate = Consumer::task(tables.iter().copied()).ready([PROMPT]);
        Self::declare(store, tables, generate.group(GroupBy::InputAndTurn, group_size), group_size)
    }

    /// The same with a *generate* task that takes up to so many rows as soon as they have their prompts, whatever their groups: for
    /// trainers that train them as they come. What is sampled is the same.
    pub fn open_by_rows(store: &Store, tables: &[&str], rows: u32) -> Result<Self> {
        Self::declare(store, tables, Consumer::task(tables.iter().copied()).ready([PROMPT]), rows)
    }

    fn declare(store: &Store, tables: &[&str], generate: Consumer, rows: u32) -> Result<Self> {
        let reward = Consumer::task(tables.iter().copied()).ready([RESPONSE]);
        Ok(RolloutTasks {
            generate: open_consumer(store, "generate", generate)?,
            reward: open_consumer(store, "reward", reward)?,
            rows,
            stopped: Arc::default(),
        })
    }

    /// Ends the loops of all workers, once what they have in hand is done.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.generate.wake();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// The consumer of that name, declared now if it is not there yet.
pub fn open_consumer(store: &Store, name: &str, declaration: Consumer) -> Result<ConsumerHandle> {
    match store.consumer(name) {
        Ok(consumer) => Ok(consumer),
        Err(_) => Ok(store.create_consumer(name, declaration)?),
    }
}

/// Samples, verifies and hands on, until it is told to stop.
pub struct Worker<G> {
    /// Who holds this worker's claims, as people see it.
    pub name: String,
    /// The tasks that it shares with the others.
    pub tasks: RolloutTasks,
    /// Who comes after whom.
    pub router: Arc<Router>,
    /// What the agents act in.
    pub environment: Arc<dyn Environment>,
    /// Told of every result.
    pub observer: Arc<dyn Observer>,
    /// What samples.
    pub generator: G,
}

impl<G: Generator> Worker<G> {
    /// Works until [`RolloutTasks::stop`].
    ///
    /// # Errors
    /// The first failure of the store or the generator. What the worker had in hand is given back.
    pub fn run(&mut self) -> Result<()> {
        while !self.tasks.is_stopped() {
            // Listening before looking: a prompt that comes in between ends the wait at once.
            let listener = self.tasks.generate.listen();
            if !self.run_once()? && !self.tasks.is_stopped() {
                self.store().clock().wait(listener, None);
            }
        }
        Ok(())
    }

    /// Does one piece of work, if there is one: rewards, or a group's responses.
    pub fn run_once(&mut self) -> Result<bool> {
        let rows = MicroBatch::up_to(self.tasks.rows as usize);
        if let Some(claim) = self.tasks.reward.claim(rows, &self.name, Wait::No)? {
            self.reward(claim)?;
            return Ok(true);
        }
        let Some(claim) = self.tasks.generate.claim(rows, &self.name, Wait::No)? else { return Ok(false) };
        self.generate(claim)?;
        Ok(true)
    }

    fn store(&self) -> &Store {
        self.tasks.generate.store()
    }

    fn generate(&mut self, claim: Claim) -> Result<()> {
        let table = self.store().table(claim.table())?;
        let batch = claim.columns(["agent", "policy_version", "attempt", PROMPT])?;
        let (agents, prompts) =
            (texts(table.name(), &batch, "agent")?, token_lists(table.name(), &batch, PROMPT)?);
        let versions = numbers(table.name(), &batch, "policy_version")?;
        let attempts = numbers(table.name(), &batch, "attempt")?;
        let parts = claim.sample_ids().iter().zip(attempts).zip(prompts);
        let requests: Vec<Request<'_>> =
            parts.map(|((sample, attempt), prompt)| Request { sample, attempt, prompt }).collect();
        let responses = self.answer(&agents, &versions, &requests)?;
        let store = self.store().clone();
        let mut batch = store.batch();
        for (&row, response) in claim.rows().iter().zip(&responses) {
            self.write_response(&mut batch, &table, row, response)?;
        }
        let rows = claim.len();
        if !settle(claim, batch)? {
            return Ok(());
        }
        let tokens = responses.iter().map(|response| response.tokens.len()).sum();
        self.observer.generated(&agents[0], rows, tokens);
        Ok(())
    }

    /// Responses to all requests, in order. One call of the generator for each run of rows that share agent and version;
    /// a group is such a run.
    fn answer(
        &mut self,
        agents: &[String],
        versions: &[u64],
        requests: &[Request<'_>],
    ) -> Result<Vec<Response>> {
        let mut responses = Vec::with_capacity(requests.len());
        while responses.len() < requests.len() {
            let start = responses.len();
            let same = |&at: &usize| agents[at] == agents[start] && versions[at] == versions[start];
            let run = &requests[start..start + (start..requests.len()).take_while(same).count()];
            let (agent, version) = (agents[start].as_str(), versions[start]);
            let answered = self.generator.generate(agent, version, run);
            let answered =
                answered.map_err(|source| Cause::Generate { agent: agent.to_owned(), version, source })?;
            if answered.len() != run.len() {
                return Err(Cause::ResponseCount { requests: run.len(), responses: answered.len() }.into());
            }
            responses.extend(answered);
        }
        Ok(responses)
    }

    fn write_response(
        &self,
        batch: &mut WriteBatch<'_>,
        table: &Table,
        row: forebay_store::Row,
        response: &Response,
    ) -> forebay_store::Result<()> {
        let text = self.environment.text(&response.tokens);
        let cells = [
            (RESPONSE, (&response.tokens).into()),
            (LOGPROBS, (&response.logprobs).into()),
            (RESPONSE_TEXT, text.as_str().into()),
        ];
        batch.write(table, row, cells)
    }

    fn reward(&self, claim: Claim) -> Result<()> {
        let table = self.store().table(claim.table())?;
        let batch = claim.columns(["agent", PROMPT, RESPONSE])?;
        let agents = texts(table.name(), &batch, "agent")?;
        let prompts = token_lists(table.name(), &batch, PROMPT)?;
        let responses = token_lists(table.name(), &batch, RESPONSE)?;
        let samples: Vec<SampleId> = claim.sample_ids().to_vec();
        let rows = claim.rows().to_vec();
        let mut outcomes = Vec::with_capacity(rows.len());
        for index in 0..rows.len() {
            let (agent, sample) = (agents[index].as_str(), &samples[index]);
            let turn = Turn { agent, sample, prompt: prompts[index], response: responses[index] };
            outcomes.push(self.judge(&turn)?);
        }
        let store = self.store().clone();
        let mut batch = store.batch();
        for (index, outcome) in outcomes.iter().enumerate() {
            let (agent, sample) = (agents[index].as_str(), &samples[index]);
            self.write_outcome(&mut batch, &table, rows[index], agent, sample, outcome)?;
        }
        if !settle(claim, batch)? {
            return Ok(());
        }
        let rewards = outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().ok())
            .map(|outcome| f64::from(outcome.reward));
        self.observer.rewarded(&agents[0], rewards.clone().count(), rewards.sum());
        Ok(())
    }

    /// What a turn is worth and how it goes on; inside, the reason why that cannot be told.
    fn judge(&self, turn: &Turn<'_>) -> Result<std::result::Result<Outcome, String>> {
        let next = self.next_agent(turn.agent)?;
        let outcome = || -> std::result::Result<Outcome, Failure> {
            let reward = self.environment.reward(turn)?;
            if !reward.is_finite() {
                return Err(format!("the reward is {reward}, which is not a finite number").into());
            }
            let next = match next {
                None => None,
                Some((agent, id)) => {
                    Some(Continuation { prompt: self.environment.next_prompt(&agent, turn)?, agent, id })
                }
            };
            Ok(Outcome { reward, next })
        };
        Ok(outcome().map_err(|failure| format!("reward_failed: {failure}")))
    }

    fn next_agent(&self, agent: &str) -> Result<Option<(String, i32)>> {
        let Some(id) = self.router.next_agent_id(agent)? else { return Ok(None) };
        Ok(Some((self.router.agent_of_id(id as i64)?.to_owned(), id as i32)))
    }

    /// The last cells of a row and the next agent's row are one record. A row whose reward failed is left out, and so
    /// are the places of its lineage further on, so that nobody waits for them.
    fn write_outcome(
        &self,
        batch: &mut WriteBatch<'_>,
        table: &Table,
        row: forebay_store::Row,
        agent: &str,
        sample: &SampleId,
        outcome: &std::result::Result<Outcome, String>,
    ) -> Result<()> {
        match outcome {
            Ok(Outcome { reward, next }) => {
                let id = next.as_ref().map(|next| next.id);
                batch.write(table, row, [(REWARD, (*reward).into()), (NEXT_AGENT_ID, id.into())])?;
                next.as_ref().map_or(Ok(()), |next| self.hand_on(batch, agent, sample, next))
            }
            Err(reason) => {
                tracing::warn!(%sample, agent, reason, "a sample is left out");
                batch.exclude(table, row, reason)?;
                self.close_lineage(batch, agent, sample)
            }
        }
    }

    fn hand_on(
        &self,
        batch: &mut WriteBatch<'_>,
        from: &str,
        sample: &SampleId,
        next: &Continuation,
    ) -> Result<()> {
        let table = self.store().table(self.router.table_of(&next.agent)?)?;
        let version = self.store().policy(self.router.policy_of(&next.agent)?)?.version;
        let row = self.router.continue_row(from, sample, &next.agent, version)?;
        let fingerprint = self.generator.fingerprint(&next.agent, version);
        let row = row.weights(&fingerprint).token(insert_token(&next.agent, &sample.next_turn(), version));
        Ok(batch.insert(&table, row, [(PROMPT, (&next.prompt).into())])?)
    }

    fn close_lineage(&self, batch: &mut WriteBatch<'_>, agent: &str, sample: &SampleId) -> Result<()> {
        let lineage = self.router.lineage(agent)?;
        let mut sample = sample.clone();
        for pair in lineage.windows(2) {
            let table = self.store().table(self.router.table_of(pair[1])?)?;
            let version = self.store().policy(self.router.policy_of(pair[1])?)?.version;
            let row =
                self.router.continue_row(pair[0], &sample, pair[1], version)?.excluded("parent_excluded");
            sample = sample.next_turn();
            batch.insert(&table, row.token(insert_token(pair[1], &sample, version)), [])?;
        }
        Ok(())
    }
}

/// Completes a claim with what was found out. False when its lease had ended meanwhile (a machine that was asleep, say):
/// its rows are somebody else's now, and what was found out is dropped.
fn settle(claim: Claim, batch: WriteBatch<'_>) -> Result<bool> {
    match claim.finish_batch(batch) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.cause(), forebay_store::Cause::ClaimFenced { .. }) => {
            tracing::warn!(%error, "a worker came too late");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// What a turn led to.
struct Outcome {
    reward: f32,
    next: Option<Continuation>,
}

/// How a trajectory goes on.
struct Continuation {
    agent: String,
    id: i32,
    prompt: Vec<u32>,
}
