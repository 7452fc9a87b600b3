//! Providers of secrets that the installation names: each is asked by a POST, and says what to send and for how long.
//!
//! What it answers is a secret: it is parsed strictly, and never repeated in an error.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use axum::http::Uri;
use kube::Client;
use serde::{Deserialize, Serialize};

use super::{Fetched, Lack, Secret, source::most_of};
use crate::{api::ProviderRef, gateway::tenant::Identity, policy::Credential, post::Target};

/// How long a secret is used whose provider does not say for how long it is good.
const FRESH: Duration = Duration::from_secs(60);

/// Who is asked for secrets.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProviderOptions {
    /// Add credentials that sandboxes name to their requests. Without it such requests are refused.
    #[arg(long)]
    pub broker_credentials: bool,
    /// A provider that sandboxes may name: NAME=URL, with https, or http on this pod's own loopback. The host of a Service,
    /// NAME.NAMESPACE.svc, is asked of the API server. Repeatable.
    #[arg(long = "credential-provider", value_name = "NAME=URL", requires = "broker_credentials")]
    pub credential_providers: Vec<Named>,
    /// Token that shows providers who asks, sent as Authorization: Bearer. Read again for each request.
    #[arg(long, value_name = "FILE", requires = "credential_providers")]
    pub credential_provider_token: Option<PathBuf>,
    /// Whom to trust for them, as PEM. Absent: those that the web trusts.
    #[arg(long, value_name = "FILE", requires = "credential_providers")]
    pub credential_provider_ca: Option<PathBuf>,
}

/// A name and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    name: String,
    url: Uri,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, url) = text.split_once('=').ok_or("expected NAME=URL")?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > 63 || !name.bytes().all(plain) {
            return Err(format!("{name:?} is no name of a provider: lower case, digits and -"));
        }
        let url: Uri = url.parse().map_err(|why| format!("{url:?} is no URL: {why}"))?;
        Ok(Self { name: name.to_owned(), url })
    }
}

/// Those of an installation, by name.
#[derive(Clone, Debug, Default)]
pub struct Providers(Arc<BTreeMap<String, Target>>);

/// What a provider is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    provider: &'a str,
    credential: &'a str,
    sandbox: Whose<'a>,
    parameters: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Whose<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

/// What it says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Answer {
    secret: String,
    #[serde(default)]
    expires_in_seconds: Option<u32>,
}

impl Providers {
    /// Those of the command line.
    ///
    /// # Errors
    /// What is wrong with one.
    pub fn new(options: &ProviderOptions) -> anyhow::Result<Self> {
        let mut all = BTreeMap::new();
        for Named { name, url } in &options.credential_providers {
            let at = || format!("--credential-provider {name}");
            let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
            let tls = url.scheme_str() == Some("https");
            let here = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
            ensure!(
                tls || here,
                "{}: a secret comes back: use https, or an address of this pod's loopback",
                at()
            );
            // What is here needs no proof of who asks.
            let token = options.credential_provider_token.clone().filter(|_| tls);
            let target = Target::new(url.clone(), token, options.credential_provider_ca.clone());
            let known = all.insert(name.clone(), target.with_context(at)?);
            ensure!(known.is_none(), "{}: there are two of this name", at());
        }
        Ok(Self(Arc::new(all)))
    }

    pub(super) async fn ask(
        &self,
        client: &Client,
        who: &Identity,
        credential: &Credential,
        provider: &ProviderRef,
    ) -> Result<Fetched, Lack> {
        let ProviderRef { name, parameters } = provider;
        let what = format!("provider {name:?}");
        let target = self.0.get(name).ok_or_else(|| {
            Lack::Gone(format!(
                "the installation has no {what}; its chart's credentials.providers names those"
            ))
        })?;
        let sandbox = Whose { namespace: &who.namespace, name: &who.name, uid: &who.uid };
        let question = Question { provider: name, credential: &credential.name, sandbox, parameters };
        let question = serde_json::to_vec(&question).unwrap_or_default();
        let said = target.post(Some(client), question.into()).await.map_err(|error| {
            tracing::warn!(
                provider = name,
                error = format!("{error:#}"),
                "a provider of credentials does not answer"
            );
            Lack::Away(format!("{what} does not answer"))
        })?;
        match said.status.as_u16() {
            200 => read(&what, &said.body),
            code @ (400..=428 | 430..=499) => Err(Lack::Gone(format!("{what} refuses ({code})"))),
            code => Err(Lack::Away(format!("{what} can't say ({code})"))),
        }
    }
}

fn read(what: &str, body: &[u8]) -> Result<Fetched, Lack> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| {
        Lack::Gone(format!("{what} answers something else than {{\"secret\", \"expiresInSeconds\"}}"))
    })?;
    let secret = Secret::new(answer.secret.into_bytes())
        .map_err(|why| Lack::Gone(format!("the secret of {what} {why}")))?;
    let life = answer.expires_in_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    Ok(Fetched { secret, fresh: life.map_or(FRESH, most_of), good: life })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_strictly_and_never_repeated() {
        let good = read("p", br#"{"secret": "sk-12345678", "expiresInSeconds": 100}"#).unwrap();
        assert_eq!((good.fresh, good.good), (Duration::from_secs(80), Some(Duration::from_secs(100))));
        assert_eq!(read("p", br#"{"secret": "sk-12345678"}"#).unwrap().fresh, FRESH);
        for bad in [
            r#"{"secret": "sk-12345678", "more": 1}"#,
            r#"{"secret": 12345678}"#,
            r#"{"token": "sk-12345678"}"#,
            r#"{"secret": "sk-1234\n5678"}"#,
            r#"{"secret": "sk-1"}"#,
            "sk-12345678",
            "",
        ] {
            let Err(Lack::Gone(why)) = read("p", bad.as_bytes()) else { panic!("{bad} is taken") };
            assert!(!why.contains("sk-1"), "{why}");
        }
    }

    #[test]
    fn a_provider_is_asked_where_nobody_else_hears_it() {
        let providers = |texts: &[&str]| {
            let credential_providers = texts.iter().map(|text| text.parse().unwrap()).collect();
            Providers::new(&ProviderOptions { credential_providers, ..ProviderOptions::default() })
        };
        assert!(
            providers(&["vault=https://vault.vault.svc:8200/v1", "local=http://127.0.0.1:8100/"]).is_ok()
        );
        assert!(providers(&["vault=http://vault.vault.svc/"]).is_err());
        assert!(providers(&["vault=https://user:password@vault.example/"]).is_err());
        assert!(providers(&["a=https://a.example/", "a=https://b.example/"]).is_err());
        for bad in ["vault", "=https://a.example/", "Vault=https://a.example/", "a= "] {
            assert!(bad.parse::<Named>().is_err(), "{bad}");
        }
    }
}
