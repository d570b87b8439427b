//! What a run declares of a store: policies, tables and consumers, and the handles on them.

use super::Store;
use crate::consumer::{Consumer, ConsumerHandle};
use crate::error::{Cause, Error, Result};
use crate::log::record::{ColumnRecord, Event};
use crate::object::ObjectRef;
use crate::policy::{Policy, PolicyInfo};
use crate::schema::{Schema, check_name};
use crate::state::{State, declare, unknown};
use crate::table::Table;

impl Store {
    /// Creates a policy that stands at `version`, held by `objects`. Creating a table without one creates a policy of
    /// the table's name at version 0.
    /// It is volatile; see [`Store::declare_policy`] for one whose commits have to name the trainer's state.
    pub fn create_policy(&self, name: &str, version: u64, objects: &[ObjectRef]) -> Result<()> {
        self.declare_policy(name, Policy::volatile().version(version).objects(objects))
    }

    /// Creates a policy as it is declared.
    ///
    /// # Errors
    /// `input` when one of that name exists, or it is named by an object that is not there.
    pub fn declare_policy(&self, name: &str, policy: Policy) -> Result<()> {
        check_name("policy", name)?;
        policy.state_keys.iter().try_for_each(|key| check_name("object", key))?;
        policy.objects.iter().try_for_each(|object| self.0.puts.check(&self.0.directory, object))?;
        self.0.submit(|state| {
            if state.policy_named(name).is_some() {
                return Err(Cause::Exists { what: "policy", name: name.to_owned() }.into());
            }
            let Policy { version, objects, state_keys } = &policy;
            objects.iter().try_for_each(|object| self.0.puts.check_still(&self.0.directory, object))?;
            let objects = objects.iter().map(ObjectRef::record).collect();
            let (name, state_keys) = (name.to_owned(), state_keys.clone());
            Ok((Event::PolicyCreated { name, version: *version, objects, state_keys }, ()))
        })
    }

    /// Creates a table, and its policy when there is none of that name yet.
    ///
    /// # Errors
    /// `input` when a table of that name exists, or the schema breaks a limit or a name rule.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<Table> {
        check_name("table", name)?;
        schema.validate()?;
        let policy = schema.policy_name().unwrap_or(name).to_owned();
        let taken = |state: &State| state.table_named(name).is_some();
        let exists = || Error::from(Cause::Exists { what: "table", name: name.to_owned() });
        let known = {
            let state = self.0.state.lock();
            if taken(&state) {
                return Err(exists());
            }
            state.policy_named(&policy).is_some()
        };
        if !known
            && let Err(error) = self.create_policy(&policy, 0, &[])
            && !matches!(error.cause(), Cause::Exists { .. })
        {
            return Err(error); // one that exists now was created by another thread
        }
        self.0.submit(|state| {
            if taken(state) {
                return Err(exists());
            }
            let columns = schema.data_columns().iter().map(ColumnRecord::new).collect();
            let policy = state.policy_named(&policy).unwrap_or_default() as u32;
            Ok((Event::TableCreated { name: name.to_owned(), policy, columns }, ()))
        })?;
        self.table(name)
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.0.check_process()?;
        let state = self.0.state.lock();
        let index = state
            .table_named(name)
            .ok_or_else(|| unknown("table", name, state.tables.iter().map(|table| &*table.name)))?;
        let table = &state.tables[index];
        Ok(Table::new(self.clone(), table))
    }

    /// The names of all tables, in the order of their creation.
    pub fn tables(&self) -> Vec<String> {
        self.0.state.lock().tables.iter().map(|table| table.name.to_string()).collect()
    }

    /// Declares a consumer. Rows that are there already are indexed for it at once.
    ///
    /// # Errors
    /// `input` when one of that name exists, a table or column is unknown, a table already has a trainer, or a group
    /// has no members.
    pub fn create_consumer(&self, name: &str, consumer: Consumer) -> Result<ConsumerHandle> {
        check_name("consumer", name)?;
        self.0.submit(|state| {
            if state.consumer_named(name).is_some() {
                return Err(Cause::Exists { what: "consumer", name: name.to_owned() }.into());
            }
            let declaration = declare(state, &consumer)?;
            Ok((Event::ConsumerCreated { name: name.to_owned(), declaration }, ()))
        })?;
        self.consumer(name)
    }

    /// The consumer of that name.
    pub fn consumer(&self, name: &str) -> Result<ConsumerHandle> {
        self.0.check_process()?;
        let state = self.0.state.lock();
        let index = state.consumer_named(name).ok_or_else(|| {
            unknown("consumer", name, state.consumers.iter().map(|consumer| &*consumer.name))
        })?;
        let kind = state.consumers[index].kind;
        Ok(ConsumerHandle::new(self.clone(), index, name.to_owned(), kind))
    }

    /// The policy of that name.
    pub fn policy(&self, name: &str) -> Result<PolicyInfo> {
        self.0.check_process()?;
        let state = self.0.state.lock();
        let index = state
            .policy_named(name)
            .ok_or_else(|| unknown("policy", name, state.policies.iter().map(|policy| &*policy.name)))?;
        Ok(PolicyInfo::from(&state.policies[index]))
    }
}
