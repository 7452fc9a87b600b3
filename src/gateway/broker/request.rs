//! One request: what it may not carry, and what is put into it.

use std::sync::Arc;

use super::{Redactor, Secret, foreign, foreign::Foreign};
use crate::{
    audit::NotRecorded,
    gateway::{
        admit::{Authorized, Dialled, Visit},
        evidence,
        flow::Asked,
        head::Request,
        reason::{Refusal, Trouble},
    },
    policy::{Credential, Policy, Wire},
};

/// An answer that is compressed could not be searched.
const READABLE: (&str, &[u8]) = ("Accept-Encoding", b"identity");
/// A part of one that the client chooses could be searched in vain: servers know more fields for it than the standard's.
const PART: &str = "range";
/// What a server keeps with its client. The client may be given another's.
const COOKIE: &str = "Cookie";

/// Whether a request that is for this place gets the credential.
fn fits(credential: &Credential, asked: &Asked) -> bool {
    match (asked.destination.name(), &asked.request) {
        (Some(host), Some((method, path))) => {
            asked.wire == Wire::Opened && credential.fits(host, asked.port, method, path)
        }
        _ => false,
    }
}

/// Looks for credentials where they do not belong, before there is a verdict: what stands for one must not even be asked with.
///
/// # Errors
/// The refusal, not recorded yet.
pub(in crate::gateway) fn examine(visit: &Visit, asked: &Asked, request: &Request) -> Result<(), Refusal> {
    let terms = visit.tenant.terms();
    for credential in terms.policy.credentials() {
        let fits = fits(credential, asked);
        // Who gives back what it was asked with would give back the secret; and what is in a WebSocket can't be searched.
        let echo = fits && (request.method == "TRACE" || request.websocket);
        let astray = !fits && foreign::holds(request, &credential.placeholder);
        if !(echo || astray) {
            continue;
        }
        let there = asked.destination.name().is_some_and(|host| credential.is_for(host));
        let trouble = if there { Trouble::CredentialMisplaced } else { Trouble::CredentialElsewhere };
        let words = Some(format!("credential {:?}", credential.name).into());
        return Err(Refusal { words, ..Refusal::about(trouble, asked) });
    }
    Ok(())
}

/// Looks for credentials of the workload's own, where the rule that allowed the request wants none. Cookies go, since honest clients
/// give back what they were given.
///
/// # Errors
/// The refusal, not recorded yet.
pub(in crate::gateway) fn own(authorized: &Authorized, request: &mut Request) -> Result<(), Refusal> {
    if !authorized.requires_brokered() {
        return Ok(());
    }
    request.remove(|name| foreign::same_field(name, COOKIE));
    let (policy, asked) = (authorized.policy(), authorized.asked());
    let (placeholders, fields): (Vec<&str>, Vec<&str>) =
        fitting(policy, asked).map(|one| (&*one.placeholder, one.spec.header.as_str())).unzip();
    let trouble = match foreign::foreign(request, &placeholders, &fields) {
        None => return Ok(()),
        Some(Foreign::Perhaps) => Trouble::CredentialDoubtful,
        Some(Foreign::Surely) => Trouble::CredentialForeign,
    };
    let rule = Some(authorized.rule().clone());
    Err(Refusal { rule, ..Refusal::about(trouble, asked) })
}

fn fitting<'p>(policy: &'p Policy, asked: &'p Asked) -> impl Iterator<Item = &'p Credential> {
    policy.credentials().iter().filter(move |credential| fits(credential, asked))
}

/// Puts the credentials that are for this request into it, on the record. The other side has proven who it is. What takes them out of
/// its answer comes back; nothing if there were none.
///
/// # Errors
/// The refusal, not recorded yet: without its credential the request does not go out.
pub(in crate::gateway) async fn add(
    visit: &Visit,
    dialled: &Dialled<'_>,
    request: &mut Request,
) -> Result<Option<Redactor>, Refusal> {
    let (policy, asked) = (visit.tenant.terms().policy.clone(), dialled.asked());
    let mut added: Vec<(&str, Arc<Secret>)> = Vec::new();
    for credential in fitting(&policy, asked) {
        let (field, prefix) = (credential.spec.header.as_str(), credential.spec.prefix());
        // Of several for one field, the first.
        if added.iter().any(|(there, _)| foreign::same_field(there, field)) {
            continue;
        }
        let (gateway, tenant) = (&visit.gateway, &visit.tenant);
        let secret =
            tenant.purse.secret(gateway.secrets.as_ref(), &tenant.identity, credential, gateway.clock);
        let secret = secret.await.map_err(|why| {
            let words = Some(format!("credential {:?}: {why}", credential.name).into());
            Refusal { words, ..Refusal::about(Trouble::CredentialUnavailable, asked) }
        })?;
        evidence::credential_used(visit, dialled, credential)
            .await
            .map_err(|NotRecorded| Refusal::about(Trouble::NotRecorded, asked))?;
        gateway.metrics.credential();
        request.remove(|name| foreign::same_field(name, field));
        request.push(field, [prefix.as_bytes(), secret.bytes()].concat());
        added.push((field, secret));
    }
    if added.is_empty() {
        return Ok(None);
    }
    request.remove(|name| foreign::same_field(name, READABLE.0));
    request.remove(|name| name.to_ascii_lowercase().ends_with(PART));
    request.push(READABLE.0, READABLE.1.to_vec());
    let redactor = Redactor::new(added.iter().map(|(_, secret)| secret.as_ref()));
    redactor.map(Some).map_err(|_| {
        let words = Some("the credentials of this request are too much to be searched for".into());
        Refusal { words, ..Refusal::about(Trouble::CredentialUnavailable, asked) }
    })
}
