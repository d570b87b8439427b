//! What Python says of a new consumer.

use forebay::store::{Comparison, Consumer, GroupBy, GroupRule, Origins, RateLimiter, TrajectoryEnd};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::{Failure, Result, input};
use crate::options::wrong;
use crate::table::purpose_named;

/// The options of `create_consumer` beside its name, tables and kind.
const NAMES: [&str; 11] = [
    "ready",
    "group",
    "trajectories",
    "trajectory_rows",
    "member_fails",
    "purposes",
    "only",
    "staleness",
    "origins",
    "priority",
    "rate_limiter",
];

/// A consumer as it is declared.
pub(crate) fn declaration(
    tables: &[String],
    kind: &str,
    given: Option<&Bound<'_, PyDict>>,
) -> Result<Consumer> {
    let tables = tables.iter().map(String::as_str);
    let mut consumer = match kind {
        "task" => Consumer::task(tables),
        "trainer" => Consumer::trainer(tables),
        other => {
            return Err(input(format!("{other:?} is no kind of consumer; it is \"task\" or \"trainer\"")));
        }
    };
    let given = Given(given);
    given.check_names()?;
    if let Some(ready) = given.get::<Vec<String>>("ready", "a list of columns")? {
        consumer = consumer.ready(ready.iter().map(String::as_str));
    }
    consumer = grouped(consumer, &given)?;
    if let Some(purposes) = given.get::<Vec<String>>("purposes", "a list of purposes")? {
        let purposes: Vec<_> = purposes.iter().map(|word| purpose_named(word)).collect::<Result<_>>()?;
        consumer = consumer.purposes(purposes);
    }
    let only = given.get::<Vec<(String, String, f64)>>("only", "a list of (column, comparison, number)")?;
    for (column, comparison, number) in only.into_iter().flatten() {
        consumer = consumer.only(&column, comparison_of(&comparison)?, number);
    }
    if let Some(versions) = given.get("staleness", "a number of versions")? {
        consumer = consumer.staleness(versions);
    }
    if let Some(origins) = given.get::<String>("origins", "\"own\", \"all\" or \"external\"")? {
        consumer = consumer.origins(origins_named(&origins)?);
    }
    if let Some(column) = given.get::<String>("priority", "a column")? {
        consumer = consumer.priority(&column);
    }
    let limiter = "(samples_per_insert, min_size_to_sample, error_buffer)";
    if let Some((samples, least, buffer)) = given.get("rate_limiter", limiter)? {
        consumer = consumer.rate_limiter(RateLimiter::new(samples, least, buffer));
    }
    Ok(consumer)
}

/// Keyword arguments; `None` is the same as nothing.
struct Given<'a, 'py>(Option<&'a Bound<'py, PyDict>>);

impl<'py> Given<'_, 'py> {
    fn check_names(&self) -> Result<()> {
        for (name, _) in self.0.into_iter().flatten() {
            let name: String = name.extract()?;
            if !NAMES.contains(&name.as_str()) {
                let names = NAMES.join(", ");
                return Err(input(format!(
                    "create_consumer has no option {name:?}; its options are {names}"
                )));
            }
        }
        Ok(())
    }

    fn value(&self, name: &str) -> Result<Option<Bound<'py, PyAny>>> {
        let value = self.0.map(|given| given.get_item(name)).transpose()?.flatten();
        Ok(value.filter(|value| !value.is_none()))
    }

    fn get<T>(&self, name: &str, expected: &str) -> Result<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let Some(value) = self.value(name)? else { return Ok(None) };
        value.extract().map(Some).map_err(|_| wrong(name, expected, &value))
    }
}

fn grouped(consumer: Consumer, given: &Given<'_, '_>) -> Result<Consumer> {
    let expected = "(key, members), with key one of input_id, input_id_turn, input_id_turn_agent, parent";
    let group = given.get::<(String, u32)>("group", expected)?;
    let trajectories = given.get::<(String, u32)>("trajectories", expected)?;
    let consumer = match (group, trajectories) {
        (Some(_), Some(_)) => {
            return Err(input("group counts rows and trajectories counts trajectories; give one of the two"));
        }
        (Some((key, members)), None) => consumer.group(key_named(&key)?, members),
        (None, Some((key, members))) => {
            let rows = given.get("trajectory_rows", "a number of rows")?;
            let end = rows.map_or(TrajectoryEnd::Closed, TrajectoryEnd::Rows);
            consumer.trajectories(key_named(&key)?, members, end)
        }
        (None, None) => return Ok(consumer),
    };
    Ok(match given.value("member_fails")? {
        Some(rule) => consumer.when_a_member_fails(rule_of(&rule)?),
        None => consumer,
    })
}

fn key_named(word: &str) -> Result<GroupBy> {
    Ok(match word {
        "input_id" => GroupBy::Input,
        "input_id_turn" => GroupBy::InputAndTurn,
        "input_id_turn_agent" => GroupBy::InputTurnAgent,
        "parent" => GroupBy::Parent,
        other => {
            return Err(input(format!(
                "{other:?} is no key of groups; it is input_id, input_id_turn, input_id_turn_agent or parent"
            )));
        }
    })
}

/// What becomes of a group: `"next_attempt"`, `"exclude"`, or the least number of members that it goes on with.
fn rule_of(rule: &Bound<'_, PyAny>) -> Result<GroupRule> {
    if let Ok(least) = rule.extract() {
        return Ok(GroupRule::Shrink { least });
    }
    match rule.extract::<String>().as_deref() {
        Ok("next_attempt") => Ok(GroupRule::NextAttempt),
        Ok("exclude") => Ok(GroupRule::Exclude),
        _ => Err(wrong("member_fails", "\"next_attempt\", \"exclude\" or the least number of members", rule)),
    }
}

fn comparison_of(sign: &str) -> Result<Comparison> {
    Ok(match sign {
        "<" => Comparison::Less,
        "<=" => Comparison::AtMost,
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        ">=" => Comparison::AtLeast,
        ">" => Comparison::Greater,
        other => return Err(input(format!("{other:?} compares nothing; it is <, <=, ==, !=, >= or >"))),
    })
}

fn origins_named(word: &str) -> Result<Origins, Failure> {
    Ok(match word {
        "own" => Origins::Own,
        "all" => Origins::All,
        "external" => Origins::External,
        other => return Err(input(format!("{other:?} is no origin of rows; it is own, all or external"))),
    })
}
