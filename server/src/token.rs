//! The word that lets a client in.

use std::fmt;
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

use crate::error::{Error, Result};

/// Takes Base64 with or without its padding: drivers differ.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A bearer token: whoever knows it may read the whole store. It is never shown.
///
/// ```
/// let token = forebay_server::Token::new("c2VjcmV0IG9mIHRoZSBydW4")?;
/// assert_eq!(format!("{token:?}"), "Token");
/// assert!(forebay_server::Token::new("two words").is_err());
/// # Ok::<(), forebay_server::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Makes a token of what an environment variable or a file holds; white space around it is no part of it.
    ///
    /// # Errors
    /// [`Error::Token`] when it is empty, or holds what no header can (white space, other than ASCII).
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Token(text.to_owned())),
            false => Err(Error::Token),
        }
    }

    /// The value of the header that shows it.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether `header` (of an `authorization`) is this token as bearer.
    pub(crate) fn is_bearer(&self, header: &str) -> bool {
        scheme(header, "bearer").is_some_and(|token| self.is(token))
    }

    /// Whether `header` is this token as password of anybody.
    pub(crate) fn is_password(&self, header: &str) -> bool {
        let decoded = scheme(header, "basic").and_then(|text| LENIENT.decode(text).ok());
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        decoded.is_some_and(|text| text.split_once(':').is_some_and(|(_, password)| self.is(password)))
    }

    /// Takes the same time wherever the first difference lies, so that nobody can find the token byte by byte.
    fn is(&self, other: &str) -> bool {
        let (mine, theirs) = (self.0.as_bytes(), other.as_bytes());
        let differs = mine.iter().zip(theirs).fold(0, |differs, (a, b)| differs | black_box(a ^ b));
        mine.len() == theirs.len() && differs == 0
    }
}

/// The credentials of a header, where it is of that scheme.
fn scheme<'a>(header: &'a str, wanted: &str) -> Option<&'a str> {
    let (scheme, credentials) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case(wanted).then_some(credentials.trim())
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot make its own token should stop there")]

    use super::*;

    #[test]
    fn the_token_is_known_in_every_form_and_nothing_else_is() {
        let token = Token::new(" sesame\n").unwrap();
        for header in ["Bearer sesame", "bearer sesame", &token.header()] {
            assert!(token.is_bearer(header), "{header}");
        }
        for header in [
            "",
            "sesame",
            "Bearer",
            "Bearer ",
            "Bearer sesam",
            "Bearer sesame1",
            "Basic sesame",
            "Bearer SESAME",
        ] {
            assert!(!token.is_bearer(header), "{header}");
        }
        // me:sesame, padded and not; :sesame
        for header in ["Basic bWU6c2VzYW1l", "Basic OnNlc2FtZQ==", "basic OnNlc2FtZQ"] {
            assert!(token.is_password(header), "{header}");
        }
        // me:sesam, sesame, what is no Base64, what is no text
        for header in ["Basic bWU6c2VzYW0=", "Basic c2VzYW1l", "Basic §", "Basic //8=", "Bearer bWU6c2VzYW1l"]
        {
            assert!(!token.is_password(header), "{header}");
        }
    }

    #[test]
    fn what_no_header_can_hold_is_no_token() {
        for text in ["", " \n", "a b", "a\tb", "schlüssel"] {
            assert!(matches!(Token::new(text), Err(Error::Token)), "{text:?}");
        }
    }
}
