//! Who may read over HTTP and Flight SQL.
//!
//! Whoever is let in needs the scope to read. Queries see the tables that the token is for, as over gRPC; what is counted of all
//! tables (`/metrics`) is for tokens of all tables.

use std::sync::Arc;

use forebay_client::Error;

use crate::access::{Access, Caller, Grant, Scope};
use crate::token::Token;

/// Who may read over HTTP and Flight SQL. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Readers(Arc<Access>);

impl Readers {
    /// Whoever shows that token, or one that is granted to clients, unless those are not asked for here.
    pub(crate) fn new(token: Option<&Token>, granted: &Access, without_grants: bool) -> Self {
        let mut access = if without_grants { Access::default() } else { granted.clone() };
        if let Some(token) = token {
            access.add(Grant::new("the server's token", token.clone()).scopes([Scope::Read]));
        }
        Readers(access.into())
    }

    /// Whether anybody is let in.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Who shows that header; refused where they may not read.
    pub(crate) fn caller(&self, header: &str) -> Result<Caller, Error> {
        let caller = self.0.caller(header)?;
        caller.check(&[Scope::Read])?;
        Ok(caller)
    }

    /// The header to show from now on, for who shows a token, as bearer or as the password of any user.
    pub(crate) fn admit(&self, header: &str) -> Result<String, Error> {
        let bearer = self.0.of_password(header).unwrap_or_else(|| header.to_owned());
        self.caller(&bearer)?;
        Ok(if self.is_open() { "Bearer none".to_owned() } else { bearer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    #[test]
    fn who_reads_has_the_scope_and_what_is_not_asked_for_is_open() {
        let mut granted = Access::default();
        granted.add(Grant::new("looker", token("l")).scopes([Scope::Read]));
        granted.add(Grant::new("boss", token("b")));
        granted.add(Grant::new("rollouts", token("r")).scopes([Scope::Write]));
        granted.add(Grant::new("tabled", token("t")).tables(["solver"]));
        let readers = Readers::new(Some(&token("s")), &granted, false);
        for (word, cause) in [
            ("l", None),
            ("b", None),
            ("s", None),
            ("r", Some("Forbidden")),
            ("t", None),
            ("x", Some("Unauthenticated")),
        ] {
            let refused = readers.caller(&format!("Bearer {word}")).err();
            assert_eq!(refused.as_ref().map(Error::cause), cause, "{word}");
        }
        assert!(Readers::new(None, &granted, true).caller("").is_ok());
        assert!(Readers::new(None, &granted, true).is_open());
        let token_alone = Readers::new(Some(&token("s")), &granted, true);
        assert!(token_alone.caller("Bearer s").is_ok() && token_alone.caller("Bearer b").is_err());
        // me:l, me:r, me:x
        assert_eq!(readers.admit("Basic bWU6bA==").unwrap(), "Bearer l");
        assert_eq!(readers.admit("Basic bWU6cg==").unwrap_err().cause(), "Forbidden");
        assert_eq!(readers.admit("Basic bWU6eA==").unwrap_err().cause(), "Unauthenticated");
        assert_eq!(readers.admit("Bearer s").unwrap(), "Bearer s");
        assert_eq!(Readers::new(None, &Access::default(), false).admit("").unwrap(), "Bearer none");
    }
}
