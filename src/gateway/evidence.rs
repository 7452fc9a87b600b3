//! What the gateway says of what it did: each connection before it is dialled and when it ends, and refusals, folded.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    admit::{Dialled, Visit},
    clock::Clock,
    entry::Entry,
    flow::{Asked, Cause},
    limit::Nanos,
    refusals::{Folded, Key},
    tenant::Tenant,
};
use crate::{
    audit::{Act, Endpoint, NotRecorded, Record, Recorder, Subject, Traffic},
    policy::{Credential, Destination, Severity},
    used::millis,
};

/// One connection that is on the record. It says that it ended when it is dropped.
pub(super) struct Connection {
    recorder: Recorder,
    record: Record,
    began: Nanos,
    clock: Clock,
    /// How it ended, if it is known.
    pub(super) cause: Option<Cause>,
    /// Bytes to the outside.
    pub(super) sent: Arc<AtomicU64>,
    /// Bytes from the outside.
    pub(super) received: Arc<AtomicU64>,
}

impl Connection {
    /// Says what is about to be dialled. Nothing where nobody records.
    ///
    /// # Errors
    /// When it must not be dialled, since it can't be recorded.
    pub(super) async fn begin(
        visit: &Visit,
        asked: &Asked,
        rule: &Arc<str>,
        addresses: &[SocketAddr],
    ) -> Result<Option<Box<Self>>, NotRecorded> {
        let gateway = &visit.gateway;
        if !gateway.recorder.is_on() {
            return Ok(None);
        }
        let number = gateway.numbers.fetch_add(1, Ordering::Relaxed);
        let mut record = Record {
            connection_uid: Some(number.to_string()),
            entry: Some(visit.entry.as_str().to_owned()),
            src_endpoint: Some(Endpoint { ip: Some(visit.source.to_string()), ..Endpoint::default() }),
            rule: Some(rule.to_string()),
            ..Record::new(Act::EgressOpened, Clock::wall().as_millisecond())
        }
        .about(visit.tenant.subject());
        let mut end = endpoint(asked);
        end.intermediate_ips = addresses.iter().map(|address| address.ip().to_string()).collect();
        record.dst_endpoint = Some(end);
        gateway.recorder.before(&record).await?;
        // What was resolved is said once.
        if let Some(end) = &mut record.dst_endpoint {
            end.intermediate_ips.clear();
        }
        Ok(Some(Box::new(Self {
            recorder: gateway.recorder.clone(),
            record,
            began: gateway.clock.now(),
            clock: gateway.clock,
            cause: None,
            sent: Arc::default(),
            received: Arc::default(),
        })))
    }

    /// What ties its records together.
    pub(super) fn number(&self) -> Option<String> {
        self.record.connection_uid.clone()
    }

    /// It was dialled at this address.
    pub(super) fn dialled(&mut self, address: Option<IpAddr>) {
        if let Some(end) = &mut self.record.dst_endpoint {
            end.ip = address.map(|address| address.to_string());
        }
        self.cause = Some(Cause::Broken);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (bytes_out, bytes_in) =
            (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        let took = Duration::from_nanos(self.clock.now().saturating_sub(self.began));
        let record = &mut self.record;
        record.turn_into(Act::EgressClosed, Clock::wall().as_millisecond());
        record.duration = Some(millis(took));
        record.traffic = Some(Traffic { bytes_out, bytes_in });
        record.status_id = if matches!(self.cause, Some(Cause::Done)) { 1 } else { 2 };
        record.status_detail = Some(self.cause.map_or("NotDialled", Cause::as_str).to_owned());
        self.recorder.say_this(record);
    }
}

/// A credential is about to be added to a request: which, and where. Not what it is.
///
/// # Errors
/// When it must not be, since it can't be recorded.
pub(super) async fn credential_used(
    visit: &Visit,
    dialled: &Dialled<'_>,
    credential: &Credential,
) -> Result<(), NotRecorded> {
    let recorder = &visit.gateway.recorder;
    if !recorder.is_on() {
        return Ok(());
    }
    let record = Record {
        connection_uid: dialled.number(),
        entry: Some(visit.entry.as_str().to_owned()),
        dst_endpoint: Some(endpoint(dialled.asked())),
        credential: Some(credential.name.to_string()),
        message: Some(credential.spec.origin()),
        ..Record::new(Act::CredentialUsed, Clock::wall().as_millisecond())
    }
    .about(visit.tenant.subject());
    recorder.before(&record).await
}

fn endpoint(asked: &Asked) -> Endpoint {
    let (hostname, ip) = match &asked.destination {
        Destination::Name(host) => (Some(host.as_str().to_owned()), None),
        Destination::Address(address) => (None, Some(address.to_string())),
    };
    Endpoint { hostname, ip, port: asked.port, intermediate_ips: Vec::new() }
}

/// A kind of refusal of somebody, with how often it was met. Hosts were made printable where they were read.
pub(super) fn refused(who: &Tenant, key: &Key, folded: &Folded) -> Record {
    let act = if key.entry == Entry::Dns { Act::NameRefused } else { Act::EgressRefused };
    let severity_id = match key.reason.severity() {
        Severity::C => 4,
        Severity::S => 3,
        Severity::N => 1,
    };
    let hostname = Some(key.host.clone()).filter(|host| !host.is_empty());
    Record {
        severity_id,
        message: folded.words.as_deref().map(ToOwned::to_owned),
        count: Some(folded.count),
        start_time: Some(folded.first.as_millisecond()),
        entry: Some(key.entry.as_str().to_owned()),
        dst_endpoint: Some(Endpoint { hostname, port: key.port, ..Endpoint::default() }),
        rule: folded.rule.as_deref().map(ToOwned::to_owned),
        ..Record::new(act, folded.last.as_millisecond())
    }
    .failed(key.reason.as_str())
    .about(who.subject())
}

/// A sandbox as far as its identity alone says it.
pub(super) fn bare(who: &super::tenant::Identity) -> Subject {
    Subject {
        uid: who.uid.to_string(),
        namespace: who.namespace.to_string(),
        name: who.name.to_string(),
        ..Subject::default()
    }
}

impl Tenant {
    /// What a record says of it: who it is, and what held for it.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let policy_generation = Some(self.terms().generation);
        Subject { policy_generation, ..(**self.subject.load()).clone() }
    }

    /// What is known of it now.
    pub fn describe(&self, subject: Subject) {
        if **self.subject.load() != subject {
            self.subject.store(subject.into());
        }
    }
}
