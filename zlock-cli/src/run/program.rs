//! The name of the command's program, which other clients may see.

use std::ffi::OsStr;

/// Returns the base name of the program, if it is certain that the name is nothing but that: arguments and variables may be
/// secret. For a script, which `sh` runs, this is its first program after assignments, or else `sh`.
pub(super) fn name(command: &OsStr, is_script: bool) -> Option<String> {
    let text = command.to_string_lossy();
    if !is_script {
        return base(&text);
    }
    let first = text.split_whitespace().find(|word| !is_assignment(word));
    Some(first.and_then(base).unwrap_or_else(|| "sh".to_owned()))
}

/// Returns the base name of a word that is a plain path. The shell reads nothing else into such a word.
fn base(word: &str) -> Option<String> {
    let name = word.rsplit('/').next().filter(|name| !name.is_empty())?;
    word.chars().all(is_plain).then(|| name.to_owned())
}

/// Returns `true` for `NAME=value` with a plain value. After any other value, the next word may be a part of it.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && value.chars().all(|c| is_plain(c) || matches!(c, ':' | ',' | '=' | '%'))
    })
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+')
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_but_a_program_is_named() {
        for (program, name) in [
            ("/usr/bin/psql", Some("psql")),
            ("g++-12", Some("g++-12")),
            ("PGPASSWORD=hunter2", None),
            ("PGPASSWORD=hun/ter2", None),
            ("psql -c hunter2", None),
            ("psql\nhunter2", None),
            ("bin/", None),
            ("", None),
        ] {
            assert_eq!(super::name(program.as_ref(), false).as_deref(), name, "{program:?}");
        }
    }

    #[test]
    fn a_script_is_named_after_its_first_program() {
        for (script, name) in [
            ("PGPASSWORD=hunter2 /usr/bin/psql -c 'select 1'", "psql"),
            ("A=1 PATH=/bin:/usr/bin make all", "make"),
            ("  echo hunter2", "echo"),
            ("env A=hunter2 make", "env"),
            // The value goes on, or the program is over.
            ("A='hunter2 hunter3' make", "sh"),
            ("A=\"hunter2\" make", "sh"),
            (r"A=hunter\ hunter2 make", "sh"),
            ("A=1;make hunter2", "sh"),
            ("A=$(cat hunter2) make", "sh"),
            ("A+=hunter2 make", "sh"),
            ("make;A=hunter2", "sh"),
            ("make>hunter2", "sh"),
            ("'my program' hunter2", "sh"),
            ("A=hunter2", "sh"),
            ("", "sh"),
        ] {
            assert_eq!(super::name(script.as_ref(), true).as_deref(), Some(name), "{script:?}");
        }
    }
}
