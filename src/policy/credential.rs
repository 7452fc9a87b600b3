//! Which requests get a sandbox's credentials. A secret itself is never here: what is known of it is where it belongs.

use std::sync::Arc;

use kube::ResourceExt as _;

use super::{
    host::Host,
    http_path::HttpMatch,
    pattern::{Pattern, Shared},
};
use crate::{
    api::{self, AgentSandbox, HttpRule},
    digest,
};

/// What every placeholder begins with, so that a person who finds one knows what it is.
const BEGINNING: &str = "glovebox-placeholder-";
/// Digits of the hash behind it: as much as a uid has, and few enough for a field.
const DIGITS: usize = 32;

/// What stands for a credential inside of the sandbox. It is made of the sandbox's uid, so that it is as random as that, the same for
/// whoever computes it, and another one for each sandbox. Nothing is opened by knowing it.
#[must_use]
pub fn placeholder(uid: &str, credential: &str) -> String {
    let hash = digest::of_parts(&["glovebox.dev/placeholder", uid, credential]);
    format!("{BEGINNING}{}", hash.get(..DIGITS).unwrap_or_default())
}

/// One credential of a sandbox, as the gateway looks at requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Credential {
    /// Its name.
    pub name: Arc<str>,
    /// What the workload has in its place.
    pub placeholder: Box<str>,
    /// As it was asked for: where the secret comes from, and which field it is put into.
    pub spec: Arc<api::Credential>,
    hosts: Box<[Host]>,
    ports: Box<[u16]>,
    paths: Option<HttpMatch>,
}

impl Credential {
    /// All of a sandbox.
    ///
    /// # Errors
    /// In words: the field, its value, and what would be right.
    pub fn of(sandbox: &AgentSandbox) -> Result<Arc<[Self]>, String> {
        let uid = sandbox.uid().unwrap_or_default();
        sandbox.spec.credentials.iter().map(|one| Self::compile(one, &uid)).collect()
    }

    fn compile(spec: &api::Credential, uid: &str) -> Result<Self, String> {
        let at = |why: String| format!("spec.credentials[{}].{why}", spec.name);
        let host = |text: &String| -> Result<Host, String> {
            let pattern = Pattern::parse(text, Shared::Meant).map_err(|why| at(format!("hosts: {why}")))?;
            if pattern.width() == super::Width::Exact {
                Ok(pattern.name().clone())
            } else {
                Err(at(format!("hosts {text:?} is a wildcard; a secret goes to hosts by their full names")))
            }
        };
        let port = |port: &i32| {
            u16::try_from(*port)
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| at(format!("ports: {port} is no port")))
        };
        let paths = HttpRule { methods: Vec::new(), paths: spec.paths.clone() };
        let paths = (!spec.paths.is_empty()).then(|| HttpMatch::compile(&paths).map_err(at));
        let sources =
            [spec.secret_ref.is_some(), spec.service_account_token.is_some(), spec.provider.is_some()];
        if sources.into_iter().filter(|there| *there).count() != 1 {
            return Err(at(
                "secretRef, serviceAccountToken, provider: exactly one of them must be there".into()
            ));
        }
        if spec.hosts.is_empty() {
            return Err(at("hosts is empty; name those that get it".into()));
        }
        Ok(Self {
            name: spec.name.as_str().into(),
            placeholder: placeholder(uid, &spec.name).into(),
            hosts: spec.hosts.iter().map(host).collect::<Result<_, _>>()?,
            ports: spec.ports.iter().map(port).collect::<Result<_, _>>()?,
            paths: paths.transpose()?,
            spec: spec.clone().into(),
        })
    }

    /// Whether it is for this host at all.
    #[must_use]
    pub fn is_for(&self, host: &Host) -> bool {
        self.hosts.contains(host)
    }

    /// Whether a request to this place gets it.
    #[must_use]
    pub fn fits(&self, host: &Host, port: u16, method: &str, path: &str) -> bool {
        self.is_for(host)
            && self.ports.contains(&port)
            && self.paths.as_ref().is_none_or(|paths| paths.permits(method, path))
    }

    /// Its hosts.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn credential(more: serde_json::Value) -> Result<Credential, String> {
        let mut spec =
            json!({"name": "openai", "hosts": ["API.example.com"], "secretRef": {"name": "s", "key": "k"}});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        Credential::compile(&serde_json::from_value(spec).unwrap(), "uid")
    }

    #[test]
    fn a_placeholder_is_each_sandboxs_own() {
        let one = placeholder("uid-1", "openai");
        assert_eq!(one, placeholder("uid-1", "openai"));
        assert_eq!(one.len(), BEGINNING.len() + 32);
        assert!(one != placeholder("uid-2", "openai") && one != placeholder("uid-1", "openai2"));
    }

    #[test]
    fn it_is_for_what_it_names_and_nothing_else() {
        let host: Host = "api.example.com".parse().unwrap();
        let any = credential(json!({})).unwrap();
        assert!(any.fits(&host, 443, "GET", "/x") && !any.fits(&host, 8443, "GET", "/x"));
        assert!(!any.fits(&"x.api.example.com".parse().unwrap(), 443, "GET", "/x"));
        let some = credential(json!({"paths": ["/v1/**"], "ports": [8443]})).unwrap();
        assert!(some.fits(&host, 8443, "POST", "/v1/chat?a=b"));
        for path in ["/v2/x", "/v1", "/v1/../v2/x", "/v1/%2e%2e/v2", "/v1//x", "v1/x"] {
            assert!(!some.fits(&host, 8443, "GET", path), "{path}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_by_its_field() {
        for (more, words) in [
            (json!({"hosts": ["*.example.com"]}), "[openai].hosts \"*.example.com\" is a wildcard"),
            (json!({"hosts": ["10.0.0.1"]}), "[openai].hosts"),
            (json!({"hosts": []}), "hosts is empty"),
            (json!({"ports": [0]}), "ports: 0"),
            (json!({"paths": ["v1"]}), "[openai].http.paths"),
            (json!({"provider": {"name": "vault"}}), "exactly one"),
            (json!({"secretRef": null}), "exactly one"),
        ] {
            let why = credential(more).unwrap_err();
            assert!(why.contains(words), "{words:?} is not in {why:?}");
        }
    }

    #[test]
    fn the_default_field_is_authorization() {
        let field = |more| {
            let one = credential(more).unwrap();
            (one.spec.header.clone(), one.spec.prefix().to_owned())
        };
        assert_eq!(field(json!({})), ("Authorization".into(), "Bearer ".into()));
        assert_eq!(field(json!({"header": "X-Api-Key"})), ("X-Api-Key".into(), String::new()));
        assert_eq!(field(json!({"prefix": "token "})), ("Authorization".into(), "token ".into()));
    }
}
