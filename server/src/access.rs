//! Who may do what: tokens with scopes, and the tables that they are for.

use std::time::{Duration, SystemTime};

use forebay_client::Error;
use forebay_query::Session;

use crate::token::Token;

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Ask: what there is, cells, queries, objects.
    Read,
    /// Declare tables and consumers, write, and do the work of tasks; make what was written stable.
    Write,
    /// Take a trainer's micro-batches, commit steps, store objects, and do the work of tasks; make what was written stable.
    Train,
    /// Delete, rewind, and all else.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Write, Scope::Train, Scope::Admin];

    /// The word for it in configurations and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Train => "train",
            Scope::Admin => "admin",
        }
    }
}

/// What the holder of a token may do.
///
/// ```
/// use forebay_server::{Grant, Scope, Token};
/// let rollouts = Grant::new("rollouts", Token::new("c2VjcmV0IG9mIHRoZSBydW4")?).scopes([Scope::Read, Scope::Write]).tables(["solver"]);
/// assert!(!format!("{rollouts:?}").contains("c2Vj"));
/// # Ok::<(), forebay_server::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a grant lets nobody in before it is given to a builder"]
pub struct Grant {
    name: String,
    token: Token,
    scopes: Vec<Scope>,
    tables: Option<Vec<String>>,
    objects: Option<Vec<String>>,
    until: Option<SystemTime>,
}

impl Grant {
    /// Everything, for whoever shows that token; `name` is what logs call them.
    pub fn new(name: &str, token: Token) -> Self {
        Grant {
            name: name.to_owned(),
            token,
            scopes: vec![Scope::Admin],
            tables: None,
            objects: None,
            until: None,
        }
    }

    /// Only this.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = Scope>) -> Self {
        self.scopes = scopes.into_iter().collect();
        self
    }

    /// Only of these tables, their consumers, and the policies whose versions they carry. Queries see no other
    /// ([`Session::with_tables`]). And no [objects](Grant::objects) but those that are named.
    pub fn tables<'a>(mut self, tables: impl IntoIterator<Item = &'a str>) -> Self {
        self.tables = Some(tables.into_iter().map(str::to_owned).collect());
        self
    }

    /// Only these objects, by key, weights of policies among them; what ends in `*` stands for all that begin so. Default: all, but
    /// for who is bound to some [tables](Grant::tables): none.
    pub fn objects<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.objects = Some(keys.into_iter().map(str::to_owned).collect());
        self
    }

    /// Only until then: calls that come later are refused, also those of a client that was let in before, and waits for rows and objects end.
    /// Default: for as long as the server runs.
    pub fn until(mut self, time: SystemTime) -> Self {
        self.until = Some(time);
        self
    }
}

impl Grant {
    fn is_shown(&self, header: &str) -> bool {
        self.token.is_bearer(header)
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(is_past)
    }
}

fn is_past(time: SystemTime) -> bool {
    SystemTime::now() >= time
}

/// Everybody who is let in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access(Vec<Grant>);

/// Somebody who was let in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) name: String,
    scopes: Vec<Scope>,
    tables: Option<Vec<String>>,
    objects: Option<Vec<String>>,
    until: Option<SystemTime>,
}

impl Caller {
    /// Somebody who may do everything: this process's own user, or anybody where no token is asked for.
    pub(crate) fn trusted() -> Self {
        Caller {
            name: "trusted".to_owned(),
            scopes: vec![Scope::Admin],
            tables: None,
            objects: None,
            until: None,
        }
    }

    /// Refuses a caller whose token has expired since it was let in: for calls that go on for long.
    pub(crate) fn check_time(&self) -> Result<(), Error> {
        if self.until.is_some_and(is_past) { Err(expired(&self.name)) } else { Ok(()) }
    }

    /// How long the caller's token is good for yet; none where it does not expire.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let until = self.until?;
        Some(until.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// Refuses what the caller may not do; one of the scopes is enough.
    pub(crate) fn check(&self, scopes: &[Scope]) -> Result<(), Error> {
        let may = |scope: &Scope| *scope == Scope::Admin || scopes.contains(scope);
        if self.scopes.iter().any(may) {
            return Ok(());
        }
        let wanted: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        let message = format!(
            "the token of {:?} has no scope {}; ask whoever gives tokens out",
            self.name,
            wanted.join(" or ")
        );
        Err(forbidden(message))
    }

    /// Refuses a table that the caller's token is not for.
    pub(crate) fn check_table(&self, table: &str) -> Result<(), Error> {
        match &self.tables {
            Some(tables) if !self.sees_table(table) => {
                let message = format!(
                    "the token of {:?} is not for table {table:?}, but for {}",
                    self.name,
                    tables.join(", ")
                );
                Err(forbidden(message))
            }
            _ => Ok(()),
        }
    }

    /// Whether the caller's token is for that table.
    pub(crate) fn sees_table(&self, table: &str) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.iter().any(|known| known == table))
    }

    /// Whether the caller's token is for the objects of that key.
    pub(crate) fn sees_object(&self, key: &str) -> bool {
        let fits = |known: &String| match known.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => key == known,
        };
        match &self.objects {
            Some(objects) => objects.iter().any(fits),
            None => self.tables.is_none(),
        }
    }

    /// Refuses an object that the caller's token is not for.
    pub(crate) fn check_object(&self, key: &str) -> Result<(), Error> {
        if self.sees_object(key) {
            return Ok(());
        }
        let granted = match self.objects.as_deref() {
            Some([_, ..]) => {
                self.objects.iter().flatten().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", ")
            }
            Some([]) | None => "none".to_owned(),
        };
        let message = format!(
            "the token of {:?} is not for object {key:?}: of objects it is for {granted}; name it in the grant's `objects`",
            self.name
        );
        Err(forbidden(message))
    }

    /// The refusal of a policy whose version no table carries that the caller's token is for.
    pub(crate) fn no_policy(&self, policy: &str) -> Error {
        let tables = self.tables.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        forbidden(format!("the token of {:?} is for {tables} only, and not for policy {policy:?}", self.name))
    }

    /// The refusal of a consumer that takes of other tables than the caller's token is for, or is none.
    pub(crate) fn no_consumer(&self, consumer: &str) -> Error {
        let tables = self.tables.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        forbidden(format!(
            "the token of {:?} is for {tables} only, and not for consumer {consumer:?}",
            self.name
        ))
    }

    /// The refusal of what is of all tables that carry a policy's version.
    pub(crate) fn not_all_of_policy(&self, policy: &str) -> Error {
        forbidden(format!(
            "the token of {:?} is not for all tables that carry the version of policy {policy:?}, and this is of all of them; \
             have it done by whose token is",
            self.name
        ))
    }

    /// The session as it is for this caller, which sees the tables that its token is for.
    pub(crate) fn session(&self, whole: &Session) -> Session {
        match &self.tables {
            None => whole.clone(),
            Some(tables) => whole.with_tables(tables),
        }
    }

    /// Whether the caller's token is for every table.
    pub(crate) fn sees_all_tables(&self) -> bool {
        self.tables.is_none()
    }

    /// Refuses a caller whose token is for some tables only.
    pub(crate) fn check_all_tables(&self) -> Result<(), Error> {
        match &self.tables {
            None => Ok(()),
            Some(tables) => {
                let message = format!(
                    "the token of {:?} is for {} only, and this is of all tables",
                    self.name,
                    tables.join(", ")
                );
                Err(forbidden(message))
            }
        }
    }
}

fn expired(name: &str) -> Error {
    let message = format!("the token of {name:?} has expired; ask whoever gives tokens out");
    Error::new(forebay_store::Kind::Input, "Unauthenticated", message)
}

fn forbidden(message: String) -> Error {
    Error::new(forebay_store::Kind::Input, "Forbidden", message)
}

impl Access {
    pub(crate) fn add(&mut self, grant: Grant) {
        self.0.push(grant);
    }

    /// Whether anybody is let in.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// The header by which who shows a token as the password of anybody shows it as bearer. Every token is compared.
    pub(crate) fn of_password(&self, header: &str) -> Option<String> {
        let fits = |grant: &&Grant| grant.token.is_password(header);
        self.0.iter().filter(fits).fold(None, |_, grant| Some(grant.token.header()))
    }

    /// Who shows this header. Every token is compared, whichever fits, so that the time tells nothing.
    pub(crate) fn caller(&self, header: &str) -> Result<Caller, Error> {
        if self.is_open() {
            return Ok(Caller::trusted());
        }
        let found =
            self.0.iter().fold(None, |found, grant| if grant.is_shown(header) { Some(grant) } else { found });
        let grant = found.ok_or_else(|| {
            let message = "show a token that the server knows: `authorization: Bearer TOKEN`";
            Error::new(forebay_store::Kind::Input, "Unauthenticated", message)
        })?;
        if grant.is_over() {
            return Err(expired(&grant.name));
        }
        let Grant { name, scopes, tables, objects, until, .. } = grant.clone();
        Ok(Caller { name, scopes, tables, objects, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    #[test]
    fn a_token_may_what_its_scopes_say_of_its_tables() {
        let mut access = Access::default();
        assert_eq!(access.caller("").unwrap(), Caller::trusted());
        access.add(Grant::new("boss", token("b")));
        access.add(Grant::new("rollouts", token("r")).scopes([Scope::Write]).tables(["solver"]));
        for header in ["", "Bearer", "Bearer x", "Bearer bb", "b"] {
            assert_eq!(access.caller(header).unwrap_err().cause(), "Unauthenticated", "{header:?}");
        }
        let boss = access.caller("Bearer b").unwrap();
        Scope::ALL.iter().for_each(|scope| boss.check(&[*scope]).unwrap());
        boss.check_table("any").and(boss.check_all_tables()).unwrap();
        let rollouts = access.caller("bearer r").unwrap();
        for (scopes, may) in [
            (&[Scope::Write][..], true),
            (&[Scope::Train, Scope::Write], true),
            (&[Scope::Read], false),
            (&[Scope::Admin], false),
        ] {
            assert_eq!(rollouts.check(scopes).is_ok(), may, "{scopes:?}");
        }
        rollouts.check_table("solver").unwrap();
        let error = rollouts.check_table("checker").unwrap_err();
        assert!(error.cause() == "Forbidden" && error.to_string().contains("\"checker\""), "{error}");
        assert!(rollouts.check_all_tables().is_err());
    }

    #[test]
    fn who_is_bound_to_tables_has_no_objects_but_those_that_are_named() {
        let grant = |name: &str| Grant::new(name, token(name));
        let mut access = Access::default();
        access.add(grant("all"));
        access.add(grant("tabled").tables(["solver"]));
        access.add(grant("named").tables(["solver"]).objects(["solver", "shared-*"]));
        access.add(grant("few").objects(["solver"]));
        access.add(grant("none").objects([]));
        for (name, keys) in [
            ("all", &["solver", "shared-a", "shared-", "solver2", "other"][..]),
            ("tabled", &[]),
            ("named", &["solver", "shared-a", "shared-"]),
            ("few", &["solver"]),
            ("none", &[]),
        ] {
            let caller = access.caller(&format!("Bearer {name}")).unwrap();
            for key in ["solver", "shared-a", "shared-", "solver2", "other", "share"] {
                let may = keys.contains(&key) || name == "all";
                assert_eq!(caller.sees_object(key), may, "{name}, {key}");
                let told = caller.check_object(key).err().map(|error| error.to_string());
                assert!(told.is_none() == may && told.is_none_or(|told| told.contains(key)), "{name}, {key}");
            }
        }
    }

    #[test]
    fn a_token_ends_when_it_was_said_to() {
        let mut access = Access::default();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        access.add(Grant::new("old", token("o")).until(at(1)));
        access.add(Grant::new("new", token("n")).until(at(1 << 40)));
        let error = access.caller("Bearer o").unwrap_err();
        assert!(
            error.cause() == "Unauthenticated" && error.to_string().contains("\"old\" has expired"),
            "{error}"
        );
        let new = access.caller("Bearer n").unwrap();
        assert!(new.name == "new" && new.time_left().is_some_and(|left| left > Duration::from_secs(1)));
        new.check_time().unwrap();
        let late = Caller { until: Some(at(1)), ..new };
        assert_eq!(
            late.check_time().unwrap_err().to_string(),
            "the token of \"new\" has expired; ask whoever gives tokens out"
        );
        assert_eq!((late.time_left(), Caller::trusted().time_left()), (Some(Duration::ZERO), None));
    }
}
