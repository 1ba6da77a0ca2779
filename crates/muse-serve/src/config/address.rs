//! Addresses to listen on, as users write them: `127.0.0.1:8080`, `localhost:8080`, `[::]:8080`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::de::{Deserialize, Deserializer, Error as _};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name or an IP address, without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str = "not an address such as 127.0.0.1:8080, localhost:8080 or [::]:8080";
        let (name, port) = text.rsplit_once(':').ok_or(WRONG)?;
        let port = port.parse().map_err(|_| WRONG)?;
        // An IPv6 address needs its brackets, or its end would be the port.
        let wrong = name.contains(':') && !name.starts_with('[');
        let host = host(name).ok().filter(|_| !wrong).ok_or(WRONG)?;
        Ok(Self { host, port })
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Address {
    /// The socket address to bind; that of IPv4 where a name has several.
    ///
    /// # Errors
    /// When the name is not known to this machine.
    pub(super) fn resolve(&self) -> Result<SocketAddr> {
        let Self { host, port } = self;
        let name = || format!("the host name {host:?}");
        let found: Vec<SocketAddr> =
            (host.as_str(), *port).to_socket_addrs().with_context(name)?.collect();
        let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
        address.copied().with_context(name).context("it has no address")
    }
}

/// A host without a port.
pub(super) fn host(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let valid = match bare.parse::<IpAddr>() {
        Ok(_) => true,
        Err(_) => bare == text && !bare.is_empty() && bare.chars().all(name),
    };
    match valid {
        true => Ok(bare.to_owned()),
        false => Err("not a host such as 0.0.0.0, localhost or ::1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for (text, host, port) in [
            ("127.0.0.1:8080", "127.0.0.1", 8080),
            ("localhost:80", "localhost", 80),
            ("[::]:8080", "::", 8080),
            ("my-host.local:0", "my-host.local", 0),
        ] {
            let expected = Address { host: host.to_owned(), port };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for wrong in
            ["", "8080", ":8080", "somewhere", "::1:8080", "h:99999", "a b:1", "http://h:1"]
        {
            let error = wrong.parse::<Address>().expect_err(wrong);
            assert!(error.contains("localhost:8080"), "{wrong}: {error}");
        }
    }

    #[test]
    fn names_resolve_to_ipv4_first() {
        let resolve = |text: &str| text.parse::<Address>().expect(text).resolve();
        assert_eq!(resolve("localhost:1").expect("known"), ([127, 0, 0, 1], 1).into());
        assert_eq!(resolve("[::1]:2").expect("an address").to_string(), "[::1]:2");
        let error = format!("{:#}", resolve("no-such-host.invalid:1").expect_err("unknown"));
        assert!(error.contains("no-such-host.invalid"), "{error}");
    }
}
