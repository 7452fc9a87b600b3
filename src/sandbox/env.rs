//! The environment that makes ordinary tools work on a read-only root and a read-only $HOME: every cache and prefix is
//! pointed at memory.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{ConfigMapKeySelector, EnvVar, EnvVarSource};

use super::{names, plan::Plan};
use crate::pem::files;

/// The workload's variables: ours first, so that the user's own win.
pub(super) fn workload(plan: &Plan) -> Vec<EnvVar> {
    let placeholders = plan.credentials.iter().filter_map(|one| Some((one.spec.env.clone()?, one)));
    let placeholders = placeholders.map(|(name, one)| EnvVar {
        name,
        value: Some(one.placeholder.to_string()),
        value_from: None,
    });
    let own: Vec<EnvVar> = placeholders.chain(plan.env.iter().map(users)).collect();
    let mut all: Vec<EnvVar> = tools(&plan.storage.workspace)
        .into_iter()
        .chain(proxy(plan))
        .chain(plan.authority.iter().flat_map(|_| trust()))
        .filter(|(name, _)| !own.iter().any(|own| own.name == *name))
        .map(|(name, value)| EnvVar { name: name.to_owned(), value: Some(value), value_from: None })
        .collect();
    all.extend(own);
    all
}

fn users(variable: &crate::api::EnvVar) -> EnvVar {
    let reference = variable.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref());
    EnvVar {
        name: variable.name.clone(),
        value: variable.value.clone(),
        value_from: reference.map(|key| EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                name: key.name.clone(),
                key: key.key.clone(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// Programs that honour these variables send the name along, which is more than a connection by address tells. Both
/// spellings: curl reads `http_proxy` only in lower case, others the reverse.
fn proxy(plan: &Plan) -> Vec<(&'static str, String)> {
    let proxy = format!("http://{}", SocketAddr::new(plan.fence.gateway, names::ports::PROXY.service));
    let local = || "localhost,127.0.0.1,::1".to_owned();
    vec![
        ("HTTP_PROXY", proxy.clone()),
        ("HTTPS_PROXY", proxy.clone()),
        ("NO_PROXY", local()),
        ("http_proxy", proxy.clone()),
        ("https_proxy", proxy),
        ("no_proxy", local()),
        // Node's own fetch honours the variables only when it is told to.
        ("NODE_USE_ENV_PROXY", "1".into()),
    ]
}

/// Programs are pointed to what the agent writes. In the pod and not by the agent, so that what is run by `kubectl exec` trusts the
/// same.
fn trust() -> Vec<(&'static str, String)> {
    let file = |name: &str| format!("{}/{name}", names::TRUST_DIR);
    // These take a file in place of what they have: OpenSSL and all that stands on it (Python, Ruby, Go and others read the same
    // variable), curl, git, pip, Python's requests, Cargo, the AWS tools, programs of Nix.
    let replace = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
        "REQUESTS_CA_BUNDLE",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
        "NIX_SSL_CERT_FILE",
    ];
    // These add a file to authorities of their own: Node with npm and its kin, Bun, and Deno.
    let add = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
    let mut all: Vec<_> = replace.into_iter().map(|name| (name, file(files::BUNDLE))).collect();
    all.extend(add.into_iter().map(|name| (name, file(files::AUTHORITY))));
    all.push(("WGETRC", file(files::WGETRC)));
    all
}

fn tools(workspace: &str) -> Vec<(&'static str, String)> {
    let home = names::HOME;
    let cache = |part: &str| format!("{}/{part}", names::CACHE);
    vec![
        ("HOME", home.to_owned()),
        ("USER", "sandbox".into()),
        ("LOGNAME", "sandbox".into()),
        ("TMPDIR", "/tmp".into()),
        ("XDG_CACHE_HOME", names::CACHE.into()),
        ("XDG_DATA_HOME", cache("data")),
        ("XDG_STATE_HOME", cache("state")),
        ("XDG_CONFIG_HOME", format!("{home}/.config")),
        // Python: what pip installs goes below the workspace; Debian's guard of the system's packages has nothing to guard.
        ("PIP_BREAK_SYSTEM_PACKAGES", "1".into()),
        ("PIP_CACHE_DIR", cache("pip")),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1".into()),
        ("PYTHONUSERBASE", format!("{workspace}/.local")),
        ("PYTHONPYCACHEPREFIX", cache("pycache")),
        // Node: the cache in memory, global installs below the workspace.
        ("NPM_CONFIG_CACHE", cache("npm")),
        ("NPM_CONFIG_PREFIX", format!("{workspace}/.local")),
        ("NPM_CONFIG_UPDATE_NOTIFIER", "false".into()),
        // Nobody is there to be asked.
        ("NPM_CONFIG_YES", "true".into()),
        ("NODE_REPL_HISTORY", String::new()),
        // Git: no template hooks, since hooks directories are protected.
        ("GIT_TEMPLATE_DIR", String::new()),
        // Rust, Go.
        ("CARGO_HOME", cache("cargo")),
        ("GOPATH", format!("{workspace}/.local/go")),
        ("GOCACHE", cache("go-build")),
    ]
}
