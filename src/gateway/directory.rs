//! Who is which address. Filled by whoever watches the cluster; asked by every entry.
//!
//! An address that is not here belongs to nobody, and nobody may go out. Before it was filled once, everybody is nobody.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::{flow::Cause, limit::Count, tenant::Tenant};
use crate::{
    detect::Board,
    policy::Host,
    sandbox::named::{Mapping, is_forwarded},
};

const SHARDS: usize = 16;
/// Most connections and queries that wait at once for their source to become known.
const MOST_HELD: u32 = 1024;
/// Most sandboxes that are gone and whose last refusals wait to be told.
const MOST_LEFT: usize = 4096;

type Shard = RwLock<HashMap<IpAddr, Arc<Tenant>>>;

/// One port of ours that stands for one host and port outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The host.
    pub host: Host,
    /// Its port.
    pub port: u16,
}

/// Ports of ours that stand for hosts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedPorts {
    ports: BTreeMap<u16, Named>,
    /// The newest first.
    services: HashMap<Host, Vec<Mapping>>,
}

impl NamedPorts {
    /// From the Services that say so, the oldest first.
    pub fn new(settled: impl IntoIterator<Item = Mapping>) -> Self {
        let mut all = Self::default();
        for mapping in settled {
            for (port, ours) in &mapping.ports {
                all.ports.insert(*ours, Named { host: mapping.host.clone(), port: *port });
            }
            all.services.entry(mapping.host.clone()).or_default().insert(0, mapping);
        }
        all
    }

    /// By the number of our port.
    #[must_use]
    pub const fn ports(&self) -> &BTreeMap<u16, Named> {
        &self.ports
    }
}

/// Sandboxes by address.
#[derive(Debug)]
pub struct Directory {
    shards: [Shard; SHARDS],
    hasher: RandomState,
    loaded: AtomicBool,
    changed: Notify,
    held: Arc<Count>,
    /// In seconds.
    heard: AtomicI64,
    named: watch::Sender<Arc<NamedPorts>>,
    /// The table whose ports are listened on.
    listening: Mutex<Weak<NamedPorts>>,
    /// That there are signs of an attack to tell.
    pub(super) board: Arc<Board>,
    /// Sandboxes that are gone, whose last refusals have not been told.
    left: Mutex<Vec<Arc<Tenant>>>,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Shard::default()),
            hasher: RandomState::new(),
            loaded: AtomicBool::new(false),
            changed: Notify::new(),
            held: Arc::default(),
            heard: AtomicI64::new(0),
            named: watch::Sender::new(Arc::default()),
            listening: Mutex::default(),
            board: Arc::default(),
            left: Mutex::default(),
        }
    }
}

impl Directory {
    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        reason = "the remainder is in range"
    )]
    fn shard(&self, address: IpAddr) -> &Shard {
        &self.shards[self.hasher.hash_one(address) as usize % SHARDS]
    }

    /// Everything that there is now was put in: from here on, who is not here is unknown.
    pub fn load(&self) {
        self.loaded.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The cluster said something, be it that nothing is new: what is here is as good as it was then.
    pub fn heard(&self, now: Timestamp) {
        self.heard.store(now.as_second(), Ordering::Relaxed);
    }

    /// When it last did, in seconds since 1970.
    #[must_use]
    pub fn last_heard(&self) -> i64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Whether it was filled once.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// A sandbox has this address. Whoever had it before has ended.
    pub fn insert(&self, address: IpAddr, tenant: &Arc<Tenant>) {
        let address = address.to_canonical();
        let before = {
            let mut shard = self.shard(address).write().unwrap_or_else(PoisonError::into_inner);
            shard.insert(address, tenant.clone())
        };
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, tenant)) {
            self.part(before);
        }
        self.changed.notify_waiters();
    }

    /// The sandbox with this uid has the address no more, and is gone. Of another sandbox, that has it by now, nothing is said.
    pub fn remove(&self, address: IpAddr, uid: &str) {
        let address = address.to_canonical();
        let gone = {
            let mut shard = self.shard(address).write().unwrap_or_else(PoisonError::into_inner);
            match shard.get(&address) {
                Some(tenant) if *tenant.identity.uid == *uid => shard.remove(&address),
                _ => None,
            }
        };
        if let Some(tenant) = gone {
            self.part(tenant);
        }
    }

    fn part(&self, tenant: Arc<Tenant>) {
        tenant.end(Cause::Gone);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < MOST_LEFT && !tenant.refusals.is_empty() {
            left.push(tenant);
        }
    }

    /// Takes those that are gone and were refused something that has not been told.
    #[must_use]
    pub fn take_left(&self) -> Vec<Arc<Tenant>> {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who has this address.
    #[must_use]
    pub fn find(&self, address: IpAddr) -> Option<Arc<Tenant>> {
        if !self.is_loaded() {
            return None;
        }
        let address = address.to_canonical();
        self.shard(address).read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    /// Who has this address, or gets it within `patience`: the watch may be behind a pod that has just started.
    pub async fn hold(&self, address: IpAddr, patience: Duration) -> Option<Arc<Tenant>> {
        if let Some(tenant) = self.find(address) {
            return Some(tenant);
        }
        let _held = self.held.enter(1, MOST_HELD)?;
        let found = async {
            loop {
                // Registered before it is looked again, so that no change falls between.
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(tenant) = self.find(address) {
                    return tenant;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, found).await.ok()
    }

    /// Everybody, each once for each address.
    #[must_use]
    pub fn tenants(&self) -> Vec<Arc<Tenant>> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| {
                let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
                shard.values().cloned().collect::<Vec<_>>()
            })
            .collect()
    }

    /// How many addresses are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many flows are open.
    #[must_use]
    pub fn open_flows(&self) -> usize {
        self.tenants().iter().map(|tenant| tenant.open_flows()).sum()
    }

    /// Closes flows whose rule has ended, and forgets secrets that nobody uses. To be called every half second or so.
    pub fn expire(&self, now: Timestamp) {
        for tenant in self.tenants() {
            let _ = tenant.expire(now);
            tenant.sweep();
        }
    }

    /// Sets which port of ours stands for which host.
    pub fn name_ports(&self, named: NamedPorts) {
        self.named.send_if_modified(|known| {
            let changed = **known != named;
            if changed {
                *known = Arc::new(named);
            }
            changed
        });
    }

    /// Which port of ours stands for which host, and its changes.
    #[must_use]
    pub fn named_ports(&self) -> watch::Receiver<Arc<NamedPorts>> {
        self.named.subscribe()
    }

    /// Every port of this table was tried to be listened on.
    pub fn listens(&self, named: &Arc<NamedPorts>) {
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(named);
    }

    /// Whether that was so of the newest table.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        std::ptr::eq(listening.as_ptr(), Arc::as_ptr(&self.named.borrow()))
    }

    /// Which host this port of ours stands for now.
    #[must_use]
    pub fn named(&self, port: u16) -> Option<Named> {
        self.named.borrow().ports.get(&port).cloned()
    }

    /// What DNS answers to somebody who may send any bytes to these ports of the host, if the gateway's own address does not
    /// lead there: that of the host's Service. `ports` are asked for only if there is one.
    #[must_use]
    pub fn service_of(&self, host: &Host, ports: impl FnOnce() -> Vec<u16>) -> Option<Ipv4Addr> {
        let named = self.named.borrow();
        let services = named.services.get(host)?;
        let ports = ports();
        if ports.iter().all(|port| is_forwarded(*port)) {
            return None;
        }
        services.iter().find(|service| service.covers(ports.iter().copied())).map(|service| service.address)
    }
}
