//! Who the caller is to the session: the same person as to the API server, by the same kubeconfig.
//!
//! Must show a token to nobody but the session, over TLS, and never a certificate beside one.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use axum::http::{HeaderValue, Request, Response, header};
use kube::{Config, client::ConfigExt as _};
use rustls::client::ResolvesClientCert;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::options::SessionOptions;

/// How the caller is known.
#[derive(Clone)]
pub(super) enum Caller {
    /// By a header.
    Token(HeaderValue),
    /// By a client certificate and its key.
    Certificate(Arc<dyn ResolvesClientCert>),
}

impl Caller {
    /// What requests carry, where that is how the caller is known.
    pub(super) const fn token(&self) -> Option<&HeaderValue> {
        match self {
            Self::Token(token) => Some(token),
            Self::Certificate(_) => None,
        }
    }
}

impl Caller {
    /// What the options and the kubeconfig say.
    pub(super) async fn of(config: &Config, options: &SessionOptions) -> anyhow::Result<Self> {
        if let Some(file) = &options.session_token_file {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("--session-token-file: can't read {}", file.display()))?;
            return Ok(Self::Token(bearer(text.trim())?));
        }
        ensure!(
            config.auth_info.impersonate.is_none() && config.auth_info.impersonate_groups.is_none(),
            "the kubeconfig acts as somebody else (as, as-groups), which the session can't: name a context without that, or a token by --session-token-file"
        );
        if let Some(header) = authorization(config).await? {
            return Ok(Self::Token(header));
        }
        // Only who the caller is, is taken from it; so that it needs nobody who vouches for the other end.
        let mut alone = config.clone();
        (alone.root_cert, alone.root_cert_file) = (Some(Vec::new()), None);
        let tls = alone.rustls_client_config().context("the kubeconfig's client certificate")?;
        ensure!(
            tls.client_auth_cert_resolver.has_certs(),
            "the kubeconfig has neither a token nor a client certificate to show to the session; name a token by --session-token-file"
        );
        Ok(Self::Certificate(tls.client_auth_cert_resolver))
    }
}

fn bearer(token: &str) -> anyhow::Result<HeaderValue> {
    ensure!(!token.is_empty(), "--session-token-file: the file is empty");
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .ok()
        .context("--session-token-file: this is no token")?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a request to the API server would carry: the kubeconfig's own client makes it, plugins included.
async fn authorization(config: &Config) -> anyhow::Result<Option<HeaderValue>> {
    let Some(layer) = config.auth_layer().context("the kubeconfig's credentials")? else { return Ok(None) };
    let kept = service_fn(|request: Request<kube::client::Body>| async move {
        let mut response = Response::new(());
        response.headers_mut().extend(
            request.headers().get(header::AUTHORIZATION).map(|value| (header::AUTHORIZATION, value.clone())),
        );
        Ok::<_, tower::BoxError>(response)
    });
    let request = Request::new(kube::client::Body::empty());
    let response = layer
        .layer(kept)
        .oneshot(request)
        .await
        .map_err(|error| anyhow::anyhow!("the kubeconfig's credentials can't be had: {error}"))?;
    let value = response.headers().get(header::AUTHORIZATION).cloned();
    match value {
        Some(value) if !value.as_bytes().starts_with(b"Bearer ") => {
            bail!(
                "the kubeconfig has a user name and a password, which the session does not take; use a token"
            )
        }
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use kube::config::AuthInfo;

    use super::*;

    fn config(info: AuthInfo) -> Config {
        let mut config = Config::new("https://127.0.0.1:6443".parse().unwrap());
        config.auth_info = info;
        config
    }

    async fn told(info: AuthInfo) -> Result<Caller, String> {
        Caller::of(&config(info), &SessionOptions::default()).await.map_err(|error| format!("{error:#}"))
    }

    #[tokio::test]
    async fn a_token_goes_before_a_certificate() {
        let made = rcgen::generate_simple_self_signed(["ada".to_owned()]).unwrap();
        let encode = |text: String| {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(text)
        };
        let certified = AuthInfo {
            client_certificate_data: Some(encode(made.cert.pem())),
            client_key_data: Some(encode(made.signing_key.serialize_pem()).into()),
            ..AuthInfo::default()
        };
        assert!(matches!(told(certified.clone()).await, Ok(Caller::Certificate(_))));
        let both = AuthInfo { token: Some("abc".to_owned().into()), ..certified };
        let Ok(Caller::Token(header)) = told(both.clone()).await else { panic!("no token") };
        assert!(header == "Bearer abc" && header.is_sensitive() && !format!("{header:?}").contains("abc"));
        let acting = AuthInfo { impersonate: Some("bob".into()), ..both };
        assert!(told(acting).await.err().unwrap().contains("acts as somebody else"));
    }

    #[tokio::test]
    async fn what_the_session_does_not_take_is_told_here() {
        assert!(told(AuthInfo::default()).await.err().unwrap().contains("neither a token nor"));
        let basic = AuthInfo {
            username: Some("a".into()),
            password: Some("b".to_owned().into()),
            ..AuthInfo::default()
        };
        assert!(told(basic).await.err().unwrap().contains("password"));
        assert!(bearer("").is_err() && bearer("a\nb").is_err());
    }
}
