//! The address of a board (a machine that only runs kernels, reached by ssh): parses and prints
//! `ssh://[user@]HOST[:PORT]`, the value of `--runner`.

use std::fmt;
use std::str::FromStr;

/// A board that is reached by the system's `ssh` client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoardAddress {
    /// `HOST` or `user@HOST`, as `ssh` takes it; a name of its configuration will do.
    pub host: String,
    /// The port; that of ssh's configuration if none.
    pub port: Option<u16>,
}

impl FromStr for BoardAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<BoardAddress, String> {
        let wrong = |why: &str| format!("`{text}` {why}; expected ssh://[user@]HOST[:PORT]");
        let rest = text.strip_prefix("ssh://").ok_or_else(|| wrong("is no address of ssh"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            // An address of IPv6 stands in brackets.
            Some((host, port)) if !port.ends_with(']') => {
                let port = port.parse().ok().filter(|p| *p > 0);
                (host, Some(port.ok_or_else(|| wrong("has no number of a port behind its colon"))?))
            }
            _ => (rest, None),
        };
        let name = host.rsplit('@').next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "@._-:[]%".contains(c);
        // `ssh` would take a name that begins with a dash for an option.
        if name.is_empty() || host.starts_with(['-', '@']) || !host.chars().all(is_plain) {
            return Err(wrong("names no host"));
        }
        Ok(BoardAddress { host: host.replace(['[', ']'], ""), port })
    }
}

impl fmt::Display for BoardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssh://{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_strange_ones_refused() {
        for text in ["ssh://pi", "ssh://me@pi.local:2222", "ssh://10.0.0.7:22"] {
            assert_eq!(text.parse::<BoardAddress>().unwrap().to_string(), text);
        }
        let bracketed: BoardAddress = "ssh://me@[fe80::1]:22/".parse().unwrap();
        assert_eq!((bracketed.host.as_str(), bracketed.port), ("me@fe80::1", Some(22)));
        for text in [
            "pi",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://a b",
            "ssh://a:0",
            "ssh://@",
            "ssh://a:b",
            "ssh://a;reboot",
        ] {
            let why = text.parse::<BoardAddress>().unwrap_err();
            assert!(why.contains("ssh://[user@]HOST"), "{why}");
        }
    }
}
