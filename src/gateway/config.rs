//! The role's command line.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;

use super::broker::ProviderOptions;
use crate::{
    audit::AuditOptions,
    policy::Host,
    sandbox::names::{self, ports},
    telemetry::LogFormat,
};

/// Run the gateway: all that leaves a sandbox passes through it, and only what a policy names.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address of DNS, by UDP and TCP.
    #[arg(long, default_value_t = everywhere(ports::DNS))]
    pub dns: SocketAddr,
    /// Address of the proxy: CONNECT, and requests with a whole URI.
    #[arg(long, default_value_t = everywhere(ports::PROXY))]
    pub proxy: SocketAddr,
    /// Address of transparent TLS.
    #[arg(long, default_value_t = everywhere(ports::TLS))]
    pub tls: SocketAddr,
    /// Address of transparent HTTP.
    #[arg(long, default_value_t = everywhere(ports::HTTP))]
    pub http: SocketAddr,
    /// Address of the tripwire, which the fence must keep every sandbox from.
    #[arg(long, default_value_t = everywhere(ports::TRIPWIRE))]
    pub tripwire: SocketAddr,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:9090")]
    pub admin: SocketAddr,
    /// Port that sandboxes mean when they come to `--tls`.
    #[arg(long, default_value_t = ports::TLS.service)]
    pub tls_port: u16,
    /// Port that sandboxes mean when they come to `--http`.
    #[arg(long, default_value_t = ports::HTTP.service)]
    pub http_port: u16,
    /// The gateway's Service, whose address DNS gives for every allowed name.
    #[arg(long, default_value = names::GATEWAY)]
    pub service: String,
    /// Namespace of the Service.
    #[arg(long, env = "POD_NAMESPACE", default_value = "glovebox-system")]
    pub namespace: String,
    /// Identity in Events; the host's name if absent.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// Addresses of this pod, which no connection may lead back to. Repeatable.
    #[arg(long = "own-ip", env = "POD_IPS", value_delimiter = ',')]
    pub own_ips: Vec<IpAddr>,
    /// DNS server outside: ADDRESS:PORT for UDP and TCP, ADDRESS:PORT/tcp, or ADDRESS:PORT/tls=NAME. Repeatable. Absent: the
    /// name servers of /etc/resolv.conf.
    #[arg(long = "upstream", env = "GLOVEBOX_UPSTREAM", value_delimiter = ',')]
    pub upstreams: Vec<Upstream>,
    /// Range of pod, service or node addresses, which no allowed name may lead to unless a class names it. Repeatable.
    #[arg(long = "cluster-cidr", value_name = "CIDR", value_delimiter = ',')]
    pub cluster_cidrs: Vec<IpNet>,
    /// Seconds that open flows may go on after the stop signal; the pod's grace period must be longer.
    #[arg(long, default_value_t = 60)]
    pub drain_seconds: u16,
    /// Most connections of this replica, as far as its file descriptors carry them; by default 50000, or what its memory holds.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: Option<u32>,
    /// Certificate of the installation's authority, as PEM: for rules with protocol HTTPS, which are refused without it.
    #[arg(long, env = "GLOVEBOX_CA_CERT", requires = "ca_key")]
    pub ca_cert: Option<PathBuf>,
    /// Its key, as PEM without a password. Both are read again when they change.
    #[arg(long, env = "GLOVEBOX_CA_KEY", requires = "ca_cert")]
    pub ca_key: Option<PathBuf>,
    /// Authorities, as PEM, that may vouch for the hosts whose TLS is opened and for DNS servers by TLS, besides those of the web.
    /// Read again when they change; for DNS at the next start.
    #[arg(long, env = "GLOVEBOX_EXTRA_ROOTS", value_name = "FILE")]
    pub extra_roots: Option<PathBuf>,
    /// Who is asked for secrets.
    #[command(flatten)]
    pub providers: ProviderOptions,
    /// Where it is said what was done.
    #[command(flatten)]
    pub audit: AuditOptions,
    /// How log lines look.
    #[arg(long, value_enum, default_value = "json")]
    pub log_format: LogFormat,
}

/// Every address of the pod, at the port that the Service leads to.
const fn everywhere(port: ports::Port) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port.pod)
}

/// How a DNS server outside is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, and TCP for what is too long.
    UdpAndTcp,
    /// TCP alone.
    Tcp,
    /// TLS, with the name that its certificate must have.
    Tls(Arc<str>),
}

/// A DNS server outside, by address: a name would have to be resolved first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Address and port.
    pub address: SocketAddr,
    /// How it is spoken to.
    pub transport: Transport,
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, transport) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: SocketAddr = address.parse().map_err(|_| {
            format!("{address:?} is not an address with a port, such as 192.0.2.53:53 or [2001:db8::53]:53")
        })?;
        let transport = match transport {
            None => Transport::UdpAndTcp,
            Some("tcp") => Transport::Tcp,
            Some(other) => {
                let name = other.strip_prefix("tls=").ok_or_else(|| {
                    format!("{other:?} is no transport; write /tcp, /tls=NAME, or nothing for UDP and TCP")
                })?;
                let name = Host::parse(name.as_bytes()).map_err(|error| format!("tls={name:?}: {error}"))?;
                Transport::Tls(name.as_str().into())
            }
        };
        Ok(Self { address, transport })
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Until an unknown source is denied.
    pub hold: Duration,
    /// Until a TLS hello is whole, from its first byte on or without any.
    pub hello: Duration,
    /// Until a request's head is whole.
    pub head: Duration,
    /// Until an allowed name is resolved.
    pub resolve: Duration,
    /// Until an allowed host takes the connection.
    pub dial: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Between two queries by TCP.
    pub dns_idle: Duration,
    /// Between two looks at the files of the authority.
    pub renew: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(2),
            hello: Duration::from_secs(5),
            head: Duration::from_secs(5),
            resolve: Duration::from_secs(5),
            dial: Duration::from_secs(10),
            idle: Duration::from_secs(3600),
            dns_idle: Duration::from_secs(5),
            renew: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_upstreams_and_says_what_is_wrong() {
        let read = |text: &str| text.parse::<Upstream>();
        assert_eq!(read("192.0.2.53:53").unwrap().transport, Transport::UdpAndTcp);
        assert_eq!(read("[2001:db8::53]:53/tcp").unwrap().transport, Transport::Tcp);
        assert_eq!(
            read("192.0.2.53:853/tls=DNS.example").unwrap().transport,
            Transport::Tls("dns.example".into())
        );
        for (text, word) in [
            ("192.0.2.53", "with a port"),
            ("dns.example:53", "with a port"),
            ("192.0.2.53:53/udp", "no transport"),
            ("192.0.2.53:853/tls=", "empty"),
            ("192.0.2.53:853/tls=1.2.3.4", "number"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
