//! `credentials` of a sandbox: secrets that the gateway adds to requests, and that the sandbox never holds.
#![expect(unreachable_pub, reason = "deriving KubeSchema copies each type into a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KeyRef;

/// The field that most APIs read a credential from, and what stands before it there.
const AUTHORIZATION: &str = "Authorization";
const BEARER: &str = "Bearer ";

/// A secret that the gateway adds to requests to the hosts that are named here, after a rule has allowed them. The workload sees a
/// placeholder, which is worth nothing anywhere else.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("[has(self.secretRef), has(self.serviceAccountToken), has(self.provider)].exists_one(x, x)", "each credential needs exactly one of secretRef, serviceAccountToken and provider"))]
#[x_kube(validation = ("self == oldSelf", "a credential is immutable: take it away, or replace the sandbox; what is in its Secret may change at any time"))]
pub struct Credential {
    /// Name, unique in its list, for messages and records.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,

    /// Variable of the workload's environment that holds the placeholder, for programs that do not start without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$"))]
    #[x_kube(validation = ("!self.startsWith('GLOVEBOX_') && !self.startsWith('KUBERNETES_')", "names that start with GLOVEBOX_ or KUBERNETES_ are reserved: the agent takes them out"))]
    pub env: Option<String>,

    /// Hosts that get it, by their full names. A rule with protocol HTTPS must allow them; a rule without a protocol that names one of
    /// them has it.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(min = 3, max = 253), regex(pattern = r"^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))
    )]
    pub hosts: Vec<String>,

    /// Their TCP ports.
    #[serde(default = "super::egress::default_ports")]
    #[schemars(length(min = 1, max = 16), inner(range(min = 1, max = 65535)))]
    pub ports: Vec<i32>,

    /// Paths, without query, as in `http.paths` of a rule: `*` is exactly one segment, `**` at the end is any rest. All, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 512), regex(pattern = "^/[!-~]*$")))]
    pub paths: Vec<String>,

    /// Field of the request that it is put into. What the workload writes there never leaves.
    #[serde(default = "default_header")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9-]+$"))]
    #[x_kube(validation = ("!(self.lowerAscii() in ['host', 'content-length', 'transfer-encoding', 'connection', 'upgrade', 'te', 'trailer', 'keep-alive', 'expect', 'accept-encoding', 'range']) && !self.lowerAscii().startsWith('proxy-') && !self.lowerAscii().startsWith('x-forwarded-')", "header must be a field that carries a credential, such as Authorization or X-Api-Key"))]
    pub header: String,

    /// What stands before the secret there. Absent: `Bearer ` and a space for Authorization, nothing for other fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[ -~]*$"))]
    pub prefix: Option<String>,

    /// A key of a Secret in the sandbox's namespace. Whoever names it must have the RBAC verb `get` or `use` on that Secret. It is read
    /// again every few seconds while it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeyRef>,

    /// A token of a ServiceAccount in the sandbox's namespace, made when it is needed, for minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<ServiceAccountToken>,

    /// A provider that whoever runs the installation has named to the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderRef>,
}

fn default_header() -> String {
    AUTHORIZATION.into()
}

impl Credential {
    /// What stands before the secret in its field.
    #[must_use]
    pub fn prefix(&self) -> &str {
        let default = if self.header.eq_ignore_ascii_case(AUTHORIZATION) { BEARER } else { "" };
        self.prefix.as_deref().unwrap_or(default)
    }

    /// Where the secret comes from, for a person.
    #[must_use]
    pub fn origin(&self) -> String {
        match (&self.secret_ref, &self.service_account_token, &self.provider) {
            (Some(secret), _, _) => format!("key {:?} of Secret {:?}", secret.key, secret.name),
            (_, Some(token), _) => {
                format!("token of ServiceAccount {:?} for {:?}", token.name, token.audience)
            }
            (_, _, Some(provider)) => format!("provider {:?}", provider.name),
            _ => "nowhere".to_owned(),
        }
    }
}

/// Tokens of a ServiceAccount for one audience. Whoever names it must have the RBAC verb `create` on its subresource `token`, or `use` on
/// it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountToken {
    /// Name of the ServiceAccount.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Whom the token is for. The cluster's own API server is refused.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("!self.contains('kubernetes.default') && self != 'api' && self != 'k3s'", "audience must be somebody outside: a token for the API server of this cluster is refused"))]
    pub audience: String,

    /// For how many seconds a token is good.
    #[serde(default = "default_expiration")]
    #[schemars(range(min = 600, max = 3600))]
    pub expiration_seconds: i32,
}

const fn default_expiration() -> i32 {
    600
}

/// A provider of the installation, which is asked by HTTP. Whoever names it must have the RBAC verb `use` on `credentialproviders` of
/// that name in the group `glovebox.dev`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ProviderRef {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,

    /// What it is told besides whose sandbox it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = {"type": "string", "maxLength": 512}))]
    pub parameters: BTreeMap<String, String>,
}
