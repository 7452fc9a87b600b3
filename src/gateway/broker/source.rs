//! Where secrets are had from: Secrets and ServiceAccounts of the sandbox's namespace, by the API server, and providers that the
//! installation names.
//!
//! Which Secrets may be read is not this code's word: the controller grants each by a Role of its own, for as long as its sandbox lives.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Secret as SecretObject, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use super::{Providers, Secret};
use crate::{
    api::{KeyRef, ServiceAccountToken},
    gateway::tenant::Identity,
    policy::{Credential, Host},
};

/// How long what a Secret holds is used without looking again: a secret that is changed or taken away counts within that.
const FRESH: Duration = Duration::from_secs(5);
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// A grant may be a moment behind the sandbox: how often it is tried again, and after what pause.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(250);
/// Annotation of a Secret: the hosts that it may be sent to, by their full names, with commas between them.
const HOSTS: &str = "glovebox.dev/hosts";
/// Where the kubelet keeps the token by which this process is known, which names the API server.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// A token is not used in the last seconds of its time.
const MARGIN: Duration = Duration::from_secs(30);

/// A secret that was had.
#[derive(Debug)]
pub struct Fetched {
    /// What it is.
    pub secret: Secret,
    /// How long it is used without asking again.
    pub fresh: Duration,
    /// How long it is used where the source can't be asked; as long as the rest of what is known stays, if it does not end by itself.
    pub good: Option<Duration>,
}

/// How much of a secret's time is used before another one is had.
pub(super) fn most_of(life: Duration) -> Duration {
    life * 4 / 5
}

/// Why there is none, for a person. Never holds any of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The source says so.
    Gone(String),
    /// The source says nothing: what was had before may be used for a while.
    Away(String),
}

/// Whoever has secrets.
pub trait Source: Send + Sync {
    /// The secret of a credential of this sandbox. `again` says that it was had before: a grant that is not there is none any more.
    fn fetch<'a>(
        &'a self,
        who: &'a Identity,
        credential: &'a Credential,
        again: bool,
    ) -> BoxFuture<'a, Result<Fetched, Lack>>;
}

/// Has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSource;

impl Source for NoSource {
    fn fetch<'a>(
        &'a self,
        _: &'a Identity,
        _: &'a Credential,
        _: bool,
    ) -> BoxFuture<'a, Result<Fetched, Lack>> {
        std::future::ready(Err(Lack::Gone("this installation brokers none".into()))).boxed()
    }
}

/// The API server, and the installation's providers.
pub struct Kubernetes {
    client: Client,
    providers: Providers,
    /// Whom tokens for the API server are for.
    own: Vec<String>,
}

impl Kubernetes {
    /// By this client, and these.
    #[must_use]
    pub fn new(client: Client, providers: Providers) -> Self {
        let token = std::fs::read_to_string(OWN_TOKEN).unwrap_or_default();
        Self { client, providers, own: audiences(&token) }
    }

    async fn secret(
        &self,
        namespace: &str,
        key: &KeyRef,
        credential: &Credential,
        tries: u32,
    ) -> Result<Fetched, Lack> {
        let api: Api<SecretObject> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("Secret {:?}", key.name);
        let mut object = granted(&what, tries, || api.get(&key.name)).await?;
        let bound = object.metadata.annotations.as_ref().and_then(|all| all.get(HOSTS));
        if let Some(other) = bound.and_then(|bound| beside(bound, credential)) {
            return Err(Lack::Gone(format!("{what} is not for {other}, by its annotation {HOSTS}")));
        }
        let value = object.data.as_mut().and_then(|data| data.remove(&key.key));
        let value = value.ok_or_else(|| Lack::Gone(format!("{what} has no key {:?}", key.key)))?;
        let secret =
            Secret::new(value.0).map_err(|why| Lack::Gone(format!("key {:?} of {what} {why}", key.key)))?;
        Ok(Fetched { secret, fresh: FRESH, good: None })
    }

    async fn token(&self, namespace: &str, token: &ServiceAccountToken, tries: u32) -> Result<Fetched, Lack> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("token of ServiceAccount {:?}", token.name);
        if self.own.contains(&token.audience) {
            let why = format!(
                "{what}: {:?} is this cluster's own API server, for which none is brokered",
                token.audience
            );
            return Err(Lack::Gone(why));
        }
        let request = TokenRequest {
            metadata: ObjectMeta::default(),
            spec: TokenRequestSpec {
                audiences: vec![token.audience.clone()],
                expiration_seconds: Some(token.expiration_seconds.into()),
                bound_object_ref: None,
            },
            status: None,
        };
        let params = PostParams::default();
        let made = granted(&what, tries, || api.create_token_request(&token.name, &params, &request)).await?;
        let status = made.status.ok_or_else(|| Lack::Away(format!("{what}: the API server made none")))?;
        let left = Duration::try_from(status.expiration_timestamp.0.duration_since(Timestamp::now()));
        let left = left.unwrap_or_default();
        let secret =
            Secret::new(status.token.into_bytes()).map_err(|why| Lack::Gone(format!("{what} {why}")))?;
        Ok(Fetched { secret, fresh: most_of(left), good: Some(left.saturating_sub(MARGIN)) })
    }
}

impl Source for Kubernetes {
    fn fetch<'a>(
        &'a self,
        who: &'a Identity,
        credential: &'a Credential,
        again: bool,
    ) -> BoxFuture<'a, Result<Fetched, Lack>> {
        let spec = &credential.spec;
        let tries = if again { 1 } else { TRIES };
        async move {
            match (&spec.secret_ref, &spec.service_account_token, &spec.provider) {
                (Some(key), _, _) => self.secret(&who.namespace, key, credential, tries).await,
                (_, Some(token), _) => self.token(&who.namespace, token, tries).await,
                (_, _, Some(provider)) => self.providers.ask(&self.client, who, credential, provider).await,
                _ => Err(Lack::Gone("nothing says where it is".into())),
            }
        }
        .boxed()
    }
}

/// One call, again for as long as the grant may be behind.
async fn granted<T, F>(what: &str, mut tries: u32, call: impl Fn() -> F) -> Result<T, Lack>
where
    F: Future<Output = kube::Result<T>>,
{
    loop {
        let answer = tokio::time::timeout(PATIENCE, call()).await;
        tries -= 1;
        return match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 && tries > 0 => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Ok(Err(kube::Error::Api(status))) => Err(match status.code {
                404 => Lack::Gone(format!("{what} is not there")),
                403 => Lack::Gone(format!("{what} is not granted to the gateway")),
                400..500 if status.code != 429 => {
                    Lack::Gone(format!("{what}: the API server refuses ({})", status.code))
                }
                code => Lack::Away(format!("{what}: the API server can't say ({code})")),
            }),
            Ok(Err(_)) | Err(_) => Err(Lack::Away(format!("{what}: the API server does not answer"))),
        };
    }
}

/// A host of the credential that is not among those that its Secret is bound to.
fn beside<'c>(bound: &str, credential: &'c Credential) -> Option<&'c str> {
    let bound: Vec<Host> = bound.split(',').filter_map(|host| host.trim().parse().ok()).collect();
    credential.hosts().iter().find(|host| !bound.contains(host)).map(Host::as_str)
}

/// Whom a token is for and who made it: what the API server takes its own to be.
fn audiences(token: &str) -> Vec<String> {
    let claims = token.split('.').nth(1).and_then(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok());
    let claims: serde_json::Value =
        claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default();
    let many = claims["aud"].as_array().cloned().unwrap_or_default();
    let all = many.iter().chain([&claims["aud"], &claims["iss"]]);
    all.filter_map(|one| one.as_str().map(ToOwned::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_the_api_server_are_known_by_our_own() {
        let token = |claims: &str| format!("x.{}.y", BASE64_URL_SAFE_NO_PAD.encode(claims));
        let own = audiences(&token(r#"{"aud": ["https://api.cluster", "k8s"], "iss": "https://issuer"}"#));
        assert_eq!(own, ["https://api.cluster", "k8s", "https://issuer"]);
        assert_eq!(audiences(&token(r#"{"aud": "one"}"#)), ["one"]);
        assert!(audiences("").is_empty() && audiences("a.b.c").is_empty());
    }
}
