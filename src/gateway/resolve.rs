//! From an allowed destination to addresses that may be dialled: `Authorized` -> `Pinned` -> a socket.
//!
//! Asks configured servers by address, for names that policy allowed; nothing else resolves a name, and nothing else dials.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{Name, RData, RecordType},
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    admit::Authorized,
    config::{Transport, Upstream},
    metrics::Metrics,
    reason::Trouble,
    trust::Trust,
};
use crate::policy::{DenyReason, Destination, Host, Policy};

/// Most aliases in a row.
const MOST_ALIASES: usize = 8;
/// Names in the cache.
const MOST_CACHED: usize = 8192;
/// An answer of TTL 0 is still used for a moment, so that a burst of connections asks once.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const LONGEST_NEGATIVE: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const MOST_TRIED: usize = 4;

/// Says whether an answer may be dialled. The product's is [`checker`]; a parameter, so that tests can have servers on loopback.
pub type Checker = Arc<dyn Fn(&Policy, IpAddr) -> Result<IpAddr, DenyReason> + Send + Sync>;

/// The policy's word, and none of the gateway's own addresses: through those a connection would come back.
#[must_use]
pub fn checker(own: Vec<IpAddr>) -> Checker {
    Arc::new(move |policy, address| {
        let checked = policy.check_answer(address)?.address();
        if own.contains(&checked) { Err(DenyReason::ClusterAddress) } else { Ok(checked) }
    })
}

/// Resolves and dials.
pub struct Resolver {
    upstream: TokioResolver,
    cache: RwLock<HashMap<Host, Found>>,
    checker: Checker,
    patience: Duration,
    metrics: Arc<Metrics>,
}

impl Resolver {
    /// One that asks these servers.
    ///
    /// # Errors
    /// When there is none, or TLS can't be set up.
    pub fn new(
        servers: &[Upstream],
        patience: Duration,
        checker: Checker,
        trust: &Trust,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NetError> {
        let servers = servers.iter().map(|server| {
            let connection = |mut connection: ConnectionConfig| {
                connection.port = server.address.port();
                connection
            };
            let connections = match &server.transport {
                Transport::UdpAndTcp => {
                    vec![connection(ConnectionConfig::udp()), connection(ConnectionConfig::tcp())]
                }
                Transport::Tcp => vec![connection(ConnectionConfig::tcp())],
                Transport::Tls(name) => vec![connection(ConnectionConfig::tls(name.clone()))],
            };
            NameServerConfig::new(server.address.ip(), true, connections)
        });
        let config = ResolverConfig::from_name_servers(servers.collect());
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_tls_config(trust.client(&[])?);
        let options = builder.options_mut();
        options.ndots = 0;
        options.use_hosts_file = ResolveHosts::Never;
        // What was found is kept here, where each connection looks; what was not, there.
        options.cache_size = 1024;
        options.positive_max_ttl = Some(Duration::ZERO);
        options.negative_max_ttl = Some(LONGEST_NEGATIVE);
        options.timeout = patience / 2;
        options.attempts = 2;
        options.max_active_requests = 1024;
        // To count aliases.
        options.preserve_intermediates = true;
        Ok(Self { upstream: builder.build()?, cache: RwLock::default(), checker, patience, metrics })
    }

    /// Finds the addresses of an allowed destination that may be dialled.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn pin(&self, authorized: Authorized) -> Result<Pinned, (Trouble, Authorized)> {
        let found = match &authorized.asked().destination {
            Destination::Address(address) => Ok(vec![*address]),
            Destination::Name(host) => match self.cached(host) {
                Some(found) => Ok(found),
                // In a box, which is gone when it is done: an idle flow should not carry its size around.
                None => match timeout(self.patience, Box::pin(self.lookup(host))).await {
                    Ok(found) => found,
                    Err(_) => Err(Trouble::TimedOut),
                },
            },
        };
        let found = match found {
            Ok(found) => found,
            Err(trouble) => return Err((trouble, authorized)),
        };
        let port = authorized.asked().port;
        let check = |address| match (self.checker)(authorized.policy(), address) {
            Ok(checked) => Some(SocketAddr::new(checked, port)),
            Err(reason) => {
                self.metrics.bad_answer(reason);
                None
            }
        };
        let addresses: Vec<_> = found.into_iter().filter_map(check).take(MOST_TRIED).collect();
        if addresses.is_empty() {
            return Err((Trouble::NoUsableAddress, authorized));
        }
        Ok(Pinned { addresses, authorized })
    }

    fn cached(&self, host: &Host) -> Option<Vec<IpAddr>> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.get(host).filter(|found| found.until > Instant::now()).map(|found| found.addresses.clone())
    }

    fn keep(&self, host: &Host, found: &Found) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MOST_CACHED {
            let now = Instant::now();
            cache.retain(|_, found| found.until > now);
            if cache.len() >= MOST_CACHED {
                cache.clear();
            }
        }
        cache.insert(host.clone(), found.clone());
    }

    async fn lookup(&self, host: &Host) -> Result<Vec<IpAddr>, Trouble> {
        let name = Name::from_ascii(format!("{host}.")).map_err(|_| Trouble::NameNotFound)?;
        let mut found = self.ask(&name, RecordType::A).await?;
        if found.addresses.is_empty() {
            found = self.ask(&name, RecordType::AAAA).await?;
        }
        if found.addresses.is_empty() {
            return Err(Trouble::NameNotFound);
        }
        self.keep(host, &found);
        Ok(found.addresses)
    }

    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Found, Trouble> {
        let found = match self.upstream.lookup(name.clone(), kind).await {
            Ok(found) => found,
            Err(error) if error.is_nx_domain() => return Err(Trouble::NameNotFound),
            Err(error) if error.is_no_records_found() => return Ok(Found::default()),
            Err(NetError::Timeout) => return Err(Trouble::TimedOut),
            Err(error) => {
                // The error may carry names that somebody outside chose.
                tracing::debug!(error = ?error.to_string(), "upstream DNS");
                return Err(Trouble::ResolverFailed);
            }
        };
        let aliases = found.answers().iter().filter(|record| matches!(record.data, RData::CNAME(_))).count();
        if aliases > MOST_ALIASES {
            return Err(Trouble::TooManyAliases);
        }
        let address = |data: &RData| match data {
            RData::A(a) => Some(IpAddr::V4(a.0)),
            RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
            _ => None,
        };
        let ttl = found.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
        Ok(Found {
            addresses: found.answers().iter().filter_map(|record| address(&record.data)).collect(),
            until: Instant::now() + Duration::from_secs(ttl.into()).clamp(SHORTEST, LONGEST),
        })
    }
}

/// What a name leads to, unchecked, and how long that holds.
#[derive(Clone)]
struct Found {
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl Default for Found {
    fn default() -> Self {
        Self { addresses: Vec::new(), until: Instant::now() }
    }
}

/// An allowed destination with addresses that were checked. Only this can be dialled.
pub struct Pinned {
    addresses: Vec<SocketAddr>,
    authorized: Authorized,
}

impl Pinned {
    /// Where it may be dialled.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What was allowed.
    #[must_use]
    pub const fn authorized(&self) -> &Authorized {
        &self.authorized
    }

    /// Dials the addresses in turn.
    ///
    /// # Errors
    /// When none takes the connection in time.
    pub async fn dial(self, patience: Duration) -> Result<(TcpStream, Authorized), (Trouble, Authorized)> {
        let each = patience / u32::try_from(self.addresses.len()).unwrap_or(1).max(1);
        let mut trouble = Trouble::Unreachable;
        for address in self.addresses {
            match timeout(each, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Bytes are passed on as they come; waiting for more would only add delay.
                    let _ = stream.set_nodelay(true);
                    return Ok((stream, self.authorized));
                }
                Ok(Err(_)) => trouble = Trouble::Unreachable,
                Err(_) => trouble = Trouble::TimedOut,
            }
        }
        Err((trouble, self.authorized))
    }
}
