//! The list of hosts that a sandboxed program may reach, and the rule that a listed name must not
//! lead to this machine or its local network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The ports (HTTPS and HTTP) that an entry of the host list allows if the entry names no port.
const DEFAULT_PORTS: [u16; 2] = [443, 80];

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    /// A host name that must match exactly.
    Name(String),
    /// Every host name that ends in this suffix, which begins with a dot. The name without the dot
    /// does not match.
    Subdomains(String),
    Address(IpAddr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AllowListEntry {
    host: HostPattern,
    /// The allowed port; `None` allows the [`DEFAULT_PORTS`].
    port: Option<u16>,
}

/// The hosts and ports that one program may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<AllowListEntry>);

/// The place where Regatta's tool server runs, as seen from this machine.
pub(super) enum ToolServerLocation {
    /// The tool server runs on this machine, at a loopback address.
    Loopback(SocketAddr),
    /// The tool server runs on another machine. Holds the entry `HOST:PORT` of the host list that
    /// allows the program to reach the tool server.
    Remote(String),
}

impl AllowList {
    /// Parses a list of hosts such as `example.com:8443`. The error names the first invalid entry.
    pub fn new(entries: &[String]) -> Result<AllowList, String> {
        entries
            .iter()
            .map(|entry| AllowListEntry::parse(entry))
            .collect::<Result<_, _>>()
            .map(AllowList)
    }

    /// Returns whether the list allows this host name or address. For a host name, the address to
    /// which the name resolves must also pass [`AllowList::allows_address`].
    pub(super) fn allows_host(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = parse_address(&host);
        self.0.iter().any(|entry| {
            let is_named = match &entry.host {
                HostPattern::Name(name) => *name == host,
                HostPattern::Subdomains(suffix) => {
                    host.len() > suffix.len() && host.ends_with(suffix.as_str())
                }
                HostPattern::Address(allowed) => address == Some(*allowed),
            };
            is_named && entry.matches_port(port)
        })
    }

    /// Returns whether a connection to a listed host may go to this address. An address of this
    /// machine or its local network must be listed itself, so that the owner of a host name cannot
    /// point the name there.
    pub(super) fn allows_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        is_public(address)
            || self.0.iter().any(|entry| {
                entry.host == HostPattern::Address(address) && entry.matches_port(port)
            })
    }
}

impl AllowListEntry {
    fn parse(entry: &str) -> Result<AllowListEntry, String> {
        let error = || {
            format!(
                "{entry:?} is not a host: write example.com, *.example.com, 192.0.2.7 or one of \
                 them with :PORT, [2001:db8::7]:PORT for an address with colons"
            )
        };
        let (host, port) = split_port(entry.trim()).ok_or_else(error)?;
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_name = |text: &str| {
            !text.is_empty()
                && text.len() <= 253
                && text
                    .split('.')
                    .all(|text| !text.is_empty() && text.len() <= 63)
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        let host = match (parse_address(&host), host.strip_prefix("*.")) {
            (Some(address), _) => HostPattern::Address(address),
            // Require a dot in the suffix, because `*.com` would allow most of the internet.
            (None, Some(suffix)) if is_name(suffix) && suffix.contains('.') => {
                HostPattern::Subdomains(format!(".{suffix}"))
            }
            (None, None) if is_name(&host) => HostPattern::Name(host),
            _ => return Err(error()),
        };
        Ok(AllowListEntry { host, port })
    }

    fn matches_port(&self, port: u16) -> bool {
        self.port
            .map_or(DEFAULT_PORTS.contains(&port), |listed| listed == port)
    }
}

/// Splits `HOST:PORT`, `[IPv6]:PORT` or a host alone into the host and the port, if there is a
/// port.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(parse_port(port)?))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((text, None));
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host, Some(parse_port(port)?))),
        None => Some((text, None)),
    }
}

/// Splits `HOST` or `HOST:PORT` into host and port. Without a port, `default_port` is used.
pub(super) fn split_host_and_port(text: &str, default_port: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = split_port(text)?;
    let is_valid = !host.is_empty()
        && host.len() <= 253
        && host
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/');
    is_valid.then_some((host.to_owned(), port.or(default_port)?))
}

fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// Parses an IP address. An IPv4 address that is written as an IPv6 address (`::ffff:192.0.2.7`)
/// becomes the IPv4 address.
pub(super) fn parse_address(host: &str) -> Option<IpAddr> {
    host.parse::<IpAddr>()
        .ok()
        .map(|address| address.to_canonical())
}

/// Returns where the tool server with this URL runs: on this machine or on another one.
pub(super) fn locate_tool_server(url: &str) -> Result<ToolServerLocation, String> {
    let (rest, default_port) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (rest, 80),
        (_, Some(rest)) => (rest, 443),
        _ => return Err(format!("{url:?} is not the URL of a server")),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = split_host_and_port(authority, Some(default_port))
        .ok_or_else(|| format!("{url:?} is not the URL of a server"))?;
    Ok(match parse_address(&host) {
        Some(address) if address.is_loopback() => {
            ToolServerLocation::Loopback(SocketAddr::new(address, port))
        }
        None if host.eq_ignore_ascii_case("localhost") => {
            ToolServerLocation::Loopback(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        }
        Some(IpAddr::V6(address)) => ToolServerLocation::Remote(format!("[{address}]:{port}")),
        _ => ToolServerLocation::Remote(format!("{host}:{port}")),
    })
}

/// Returns whether an address belongs to the public internet and not to this machine or a private
/// network.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            !(address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_broadcast()
                || address.is_multicast()
                || address.is_documentation()
                || a == 0
                || a >= 240
                // These ranges are not public: they are reserved for carrier-grade NAT, for
                // protocol assignments and for benchmarks.
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (b == 18 || b == 19)))
        }
        IpAddr::V6(address) => {
            let segments = address.segments();
            let embedded =
                |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
            if segments[..6] == [0; 6] || segments[..6] == [0, 0, 0, 0, 0, 0xffff] {
                // This is `::`, `::1`, or an IPv6 address that contains an IPv4 address. Judge the
                // IPv4 address; `::` and `::1` are not public.
                return segments[6] != 0 && is_public(embedded(segments[6], segments[7]).into());
            }
            if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
                return is_public(embedded(segments[6], segments[7]).into());
            }
            if segments[0] == 0x2002 {
                return is_public(embedded(segments[1], segments[2]).into());
            }
            // Accept only addresses that begin with the bits 001, because only these are assigned
            // to the public internet. The ranges for tunnels and documentation are not public
            // either.
            segments[0] & 0xe000 == 0x2000
                && !(segments[0] == 0x2001 && (segments[1] < 0x200 || segments[1] == 0xdb8))
                && segments[0] != 0x3fff
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow_list(entries: &[&str]) -> AllowList {
        AllowList::new(&entries.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn s11_a_list_matches_only_its_own_hosts_and_ports() {
        let rules = allow_list(&[
            "api.example.com",
            "*.files.example",
            "Mixed.Example:8443",
            "192.0.2.7:81",
            "[2001:db8::7]",
        ]);
        let listed = [
            ("api.example.com", 443),
            ("API.example.com.", 80),
            ("a.files.example", 443),
            ("a.b.files.example", 443),
            ("mixed.example", 8443),
            ("192.0.2.7", 81),
            ("2001:db8::7", 443),
            ("::ffff:192.0.2.7", 81),
        ];
        for (host, port) in listed {
            assert!(rules.allows_host(host, port), "{host}:{port}");
        }
        let others = [
            ("api.example.com", 22),
            ("xapi.example.com", 443),
            ("api.example.com.evil.example", 443),
            ("files.example", 443),
            ("xfiles.example", 443),
            ("mixed.example", 443),
            ("192.0.2.7", 443),
            ("192.0.2.8", 81),
            ("2001:db8::8", 443),
            ("", 443),
        ];
        for (host, port) in others {
            assert!(!rules.allows_host(host, port), "{host}:{port}");
        }
    }

    #[test]
    fn entry_that_is_not_a_host_is_refused() {
        for entry in [
            "",
            "*",
            "*.com",
            "a b",
            "http://a.example",
            "a.example/x",
            "a.example:0",
            "a.example:x",
            "a*.b.c",
            "[a]:1",
        ] {
            let error = AllowList::new(&[entry.to_owned()]).unwrap_err();
            assert!(error.contains("is not a host"), "{entry}: {error}");
        }
    }

    #[test]
    fn s11_listed_names_do_not_reach_local_or_private_addresses() {
        let rules = allow_list(&["a.example", "10.1.2.3:8080"]);
        let closed = [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
        ];
        for address in closed {
            assert!(
                !rules.allows_address(address.parse().unwrap(), 443),
                "{address}"
            );
        }
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ] {
            assert!(
                rules.allows_address(address.parse().unwrap(), 443),
                "{address}"
            );
        }
        assert!(rules.allows_address("10.1.2.3".parse().unwrap(), 8080));
        assert!(!rules.allows_address("10.1.2.3".parse().unwrap(), 443));
    }
}
