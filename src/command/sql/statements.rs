//! Where one statement ends and the next begins: at a `;` that is in no text, name or comment.

/// What a character is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Code,
    /// Text or a name, until the same quote.
    Quotes(char),
    LineComment,
    BlockComment,
}

/// A text, taken apart.
struct Taken<'a> {
    /// The statements that end with `;`, without it.
    ended: Vec<&'a str>,
    /// What comes after the last of them.
    rest: &'a str,
    /// Whether the rest ends inside of quotes or a comment.
    is_open: bool,
}

fn take(text: &str) -> Taken<'_> {
    let (mut within, mut from, mut ended) = (Within::Code, 0, Vec::new());
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        within = match (within, character, next) {
            (Within::Code, ';', _) => {
                ended.push(&text[from..at]);
                from = at + 1;
                Within::Code
            }
            (Within::Code, '\'' | '"' | '`', _) => Within::Quotes(character),
            (Within::Code, '-', Some('-')) => Within::LineComment,
            (Within::Code, '/', Some('*')) => {
                characters.next();
                Within::BlockComment
            }
            (Within::Quotes(quote), _, _) if quote == character => Within::Code, // doubled, it opens again at once
            (Within::LineComment, '\n', _) => Within::Code,
            (Within::BlockComment, '*', Some('/')) => {
                characters.next();
                Within::Code
            }
            (within, ..) => within,
        };
    }
    let is_open = !matches!(within, Within::Code | Within::LineComment);
    Taken { ended, rest: &text[from..], is_open }
}

/// All statements of a text; the last may lack its `;`.
pub(super) fn all(text: &str) -> Vec<String> {
    let taken = take(text);
    let statements = taken.ended.into_iter().chain([taken.rest]);
    statements.filter(|statement| !is_blank(statement)).map(|statement| statement.trim().to_owned()).collect()
}

/// Whether nothing more is needed to run what was typed.
pub(super) fn is_whole(text: &str) -> bool {
    let taken = take(text);
    !taken.is_open && is_blank(taken.rest)
}

/// Whether there is nothing but space and comments.
fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            return rest.is_empty();
        };
        rest = after.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_that_are_code() {
        for (text, expected) in [
            ("SELECT 1", &["SELECT 1"][..]),
            ("SELECT 1; SELECT 2;\n", &["SELECT 1", "SELECT 2"]),
            ("SELECT ';', \"a;b\" ; -- c;d\n SELECT 2", &["SELECT ';', \"a;b\"", "-- c;d\n SELECT 2"]),
            ("SELECT 'it''s;' /* ; */ ;;", &["SELECT 'it''s;' /* ; */"]),
            ("-- nothing;\n/* at all; */ ;", &[]),
            ("", &[]),
        ] {
            assert_eq!(all(text), expected, "{text}");
        }
    }

    #[test]
    fn the_prompt_knows_when_a_statement_is_whole() {
        for (text, whole) in [
            ("", true),
            ("SELECT 1", false),
            ("SELECT 1;", true),
            ("SELECT 1; -- more", true),
            ("SELECT ';", false),
            ("SELECT 1; /* ", false),
            ("SELECT 1;\nSELECT 2", false),
            ("SELECT -1 - 2;", true),
        ] {
            assert_eq!(is_whole(text), whole, "{text}");
        }
    }
}
