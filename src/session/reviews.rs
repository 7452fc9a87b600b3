//! Who somebody is and whether they may: the API server's word, believed for a few seconds. Without its word, nobody is let in.
//!
//! A token is hashed before anything else is done with it, and kept nowhere.

use std::{collections::BTreeMap, sync::Arc};

use axum::http::{HeaderMap, header, request::Parts};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

use super::{
    cache::{Away, Cache, Key, key},
    certificate::{Authority, Named, Peer},
    config::Timing,
    metrics::{Asked, Metrics},
    problem::{Problem, Reason},
};
use crate::api::GROUP;

/// Most answers of each sort that are remembered.
const MOST_REMEMBERED: usize = 4096;
/// Most questions at once: whoever invents tokens must not drown the API server.
const MOST_ASKED: usize = 64;
/// Longest token, in bytes.
const MOST_TOKEN: usize = 16 * 1024;

/// Somebody whom the API server knows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Their name, as audit records have it.
    pub(crate) name: String,
    /// A hash of all that makes them who they are.
    pub(super) key: Key,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

#[cfg(feature = "audit")]
impl User {
    /// The pod that the token is bound to, as the API server says.
    pub(crate) fn pod(&self) -> Option<&str> {
        let pods = self.extra.as_ref()?.get("authentication.kubernetes.io/pod-name")?;
        pods.first().map(String::as_str)
    }
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Have a command run.
    Exec,
    /// See where a sandbox stands.
    Look,
    /// Read what its workload wrote.
    Logs,
    /// See its files and what they hold.
    ReadFiles,
    /// Make files where there are none.
    CreateFiles,
    /// Make files, and put them in the place of others.
    WriteFiles,
    /// Remove files.
    DeleteFiles,
    /// Read what was recorded: of one namespace, or of all.
    #[cfg_attr(not(feature = "audit"), expect(dead_code, reason = "the trail alone asks for it"))]
    ReadTrail,
}

impl Right {
    const fn verb(self) -> &'static str {
        match self {
            Self::Exec | Self::CreateFiles => "create",
            Self::Look | Self::Logs | Self::ReadFiles | Self::ReadTrail => "get",
            Self::WriteFiles => "update",
            Self::DeleteFiles => "delete",
        }
    }

    /// Records are no objects; RBAC takes a rule for them all the same.
    const fn resource(self) -> &'static str {
        match self {
            Self::ReadTrail => "auditrecords",
            _ => "agentsandboxes",
        }
    }

    const fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Exec => Some("exec"),
            Self::Look | Self::ReadTrail => None,
            Self::Logs => Some("logs"),
            Self::ReadFiles | Self::CreateFiles | Self::WriteFiles | Self::DeleteFiles => Some("files"),
        }
    }

    /// The rule, as it can be put into a Role.
    fn rule(self) -> String {
        let below = self.subresource().map(|name| format!("/{name}")).unwrap_or_default();
        format!("apiGroups: [{GROUP}], resources: [{}{below}], verbs: [{}]", self.resource(), self.verb())
    }
}

/// Asks the API server.
pub(crate) struct Reviewer {
    client: Client,
    audiences: Vec<String>,
    authority: Arc<Authority>,
    tokens: Cache<Option<Arc<User>>>,
    rights: Cache<bool>,
    slots: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Reviewer {
    pub(crate) fn new(
        client: Client,
        audiences: Vec<String>,
        authority: Arc<Authority>,
        timing: &Timing,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            audiences,
            authority,
            tokens: Cache::new(timing.believed, timing.review, MOST_REMEMBERED),
            rights: Cache::new(timing.believed, timing.review, MOST_REMEMBERED),
            slots: Arc::new(Semaphore::new(MOST_ASKED)),
            metrics,
        }
    }

    /// Who asks: whose token it is, or whom the certificate of the connection names where there is no token. A token that is not
    /// good is not made good by a certificate.
    pub(crate) async fn who(&self, request: &Parts) -> Result<Arc<User>, Problem> {
        match request.extensions.get::<Peer>() {
            Some(peer) if !request.headers.contains_key(header::AUTHORIZATION) => self.shown(peer),
            _ => self.bearer(&request.headers).await,
        }
    }

    /// Whom the certificate names. It is held against the authority again for each request, which costs less than asking.
    fn shown(&self, peer: &Peer) -> Result<Arc<User>, Problem> {
        self.metrics.asked(Asked::Certificate, false);
        self.authority.who(peer).and_then(certified).ok_or_else(|| {
            Problem::new(
                Reason::Unauthenticated,
                "the client certificate is not good any more, or names no user; connect again with another one, or send a token",
            )
        })
    }

    /// Whose token it is.
    async fn bearer(&self, headers: &HeaderMap) -> Result<Arc<User>, Problem> {
        let token = token(headers)?;
        let review = || {
            let spec = TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(self.audiences.clone()).filter(|all| !all.is_empty()),
            };
            let review = TokenReview { spec, ..TokenReview::default() };
            let asked = ask(self.client.clone(), self.slots.clone(), review);
            let audiences = self.audiences.clone();
            async move { asked.await.map(|review| user(review, &audiences)) }
        };
        let (answer, known) = self.tokens.get(key(&[token.as_bytes()]), review).await;
        self.metrics.asked(Asked::Token, known);
        answer.map_err(|Away| away())?.ok_or_else(|| {
            Problem::new(
                Reason::Unauthenticated,
                "the API server does not take this token: it has expired, or is for another audience or cluster",
            )
        })
    }

    /// Whether they may do this to that sandbox, be there one or not.
    pub(crate) async fn may(
        &self,
        user: &User,
        right: Right,
        namespace: &str,
        name: &str,
    ) -> Result<(), Problem> {
        let below = right.subresource().unwrap_or_default();
        let parts = [
            &user.key[..],
            right.verb().as_bytes(),
            right.resource().as_bytes(),
            below.as_bytes(),
            namespace.as_bytes(),
            name.as_bytes(),
        ];
        let review = || {
            let review = access(user, right, namespace, name);
            let asked = ask(self.client.clone(), self.slots.clone(), review);
            async move { asked.await.map(|review| review.status.is_some_and(|status| status.allowed)) }
        };
        let (answer, known) = self.rights.get(key(&parts), review).await;
        self.metrics.asked(Asked::Access, known);
        if answer.map_err(|Away| away())? {
            return Ok(());
        }
        let (who, rule) = (&user.name, right.rule());
        let message = if namespace.is_empty() {
            format!(
                "{who} may not do this in all namespaces; a ClusterRole needs the rule {{{rule}}}, bound to them by a ClusterRoleBinding"
            )
        } else {
            format!(
                "{who} may not do this in namespace {namespace}; a Role there needs the rule {{{rule}}}, bound to them"
            )
        };
        Err(Problem::new(Reason::Forbidden, message))
    }
}

fn away() -> Problem {
    let message = "the API server does not say who you are and what you may; try again in a moment";
    Problem::new(Reason::ApiUnavailable, message)
}

/// The token of a request.
fn token(headers: &HeaderMap) -> Result<&str, Problem> {
    let bad = |message| Problem::new(Reason::Unauthenticated, message);
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return Err(bad(
            "send one header Authorization: Bearer TOKEN, such as kubectl create token prints, or connect with a client certificate of this cluster if the session takes them",
        ));
    };
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).unwrap_or_default();
    let token = token.trim_matches(' ');
    let good = (1..=MOST_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !scheme.eq_ignore_ascii_case("bearer") || !good {
        return Err(bad("the header Authorization is not Bearer TOKEN"));
    }
    Ok(token)
}

fn access(user: &User, right: Right, namespace: &str, name: &str) -> SubjectAccessReview {
    let attributes = ResourceAttributes {
        group: Some(GROUP.into()),
        resource: Some(right.resource().into()),
        subresource: right.subresource().map(Into::into),
        verb: Some(right.verb().into()),
        namespace: Some(namespace.into()),
        name: Some(name.into()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        user: Some(user.name.clone()),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
        non_resource_attributes: None,
    };
    SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None }
}

/// Whom a review names, if the token is good and for one of the audiences.
fn user(review: TokenReview, audiences: &[String]) -> Option<Arc<User>> {
    let status = review.status.filter(|status| status.authenticated == Some(true))?;
    // A server that knows nothing of audiences names none: then the token is for the server itself.
    let named = status.audiences.unwrap_or_default();
    if !audiences.is_empty() && !audiences.iter().any(|audience| named.contains(audience)) {
        return None;
    }
    let UserInfo { username, uid, groups, extra } = status.user?;
    known(username.filter(|name| !name.is_empty())?, uid, groups, extra)
}

/// Whom a certificate names. It has no uid: whether one counts is a setting of the API server that nobody else can see.
fn certified(named: Named) -> Option<Arc<User>> {
    known(named.user, None, Some(named.groups), None)
}

fn known(
    name: String,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
) -> Option<Arc<User>> {
    let parts = serde_json::to_vec(&(&name, &uid, &groups, &extra)).ok()?;
    Some(Arc::new(User { key: key(&[&parts]), name, uid, groups, extra }))
}

/// One question, when there is room for it.
async fn ask<K>(client: Client, slots: Arc<Semaphore>, review: K) -> Result<K, Away>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let _slot = slots.acquire_owned().await.map_err(|_| Away)?;
    let api: Api<K> = Api::all(client);
    api.create(&PostParams::default(), &review).await.map_err(|error| {
        // Never the whole error: what was sent holds a token.
        let said = match &error {
            kube::Error::Api(status) => status.reason.clone(),
            _ => "no answer".to_owned(),
        };
        tracing::warn!(kind = %K::kind(&()), said, "the API server can't be asked");
        Away
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::TokenReviewStatus;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_stands_alone_behind_its_scheme() {
        assert_eq!(token(&headers(&["Bearer abc.def-1"])), Ok("abc.def-1"));
        assert_eq!(token(&headers(&["bearer  abc "])), Ok("abc"));
        let long = format!("Bearer {}", "a".repeat(MOST_TOKEN + 1));
        for values in [
            &[][..],
            &["Bearer a", "Bearer a"],
            &["Bearer"],
            &["Bearer "],
            &["Basic YTpi"],
            &["Bearer a b"],
            &["Bearer a\tb"],
            &[&long],
        ] {
            assert_eq!(token(&headers(values)).unwrap_err().reason, Reason::Unauthenticated, "{values:?}");
        }
    }

    fn review(authenticated: bool, audiences: Option<&[&str]>, username: Option<&str>) -> TokenReview {
        let user = UserInfo { username: username.map(Into::into), ..UserInfo::default() };
        let status = TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: audiences.map(|all| all.iter().map(ToString::to_string).collect()),
            user: Some(user),
            error: None,
        };
        TokenReview { status: Some(status), ..TokenReview::default() }
    }

    #[test]
    fn a_token_for_somebody_else_is_nobodys() {
        let ours = ["ours".to_owned(), "glovebox".to_owned()];
        let name = |review, audiences: &[String]| user(review, audiences).map(|user| user.name.clone());
        assert_eq!(name(review(true, None, Some("a")), &[]).as_deref(), Some("a"));
        assert_eq!(name(review(true, Some(&["glovebox"]), Some("a")), &ours).as_deref(), Some("a"));
        assert_eq!(name(review(true, Some(&["theirs"]), Some("a")), &ours), None);
        assert_eq!(name(review(true, None, Some("a")), &ours), None, "a server that ignores audiences");
        assert_eq!(name(review(false, None, Some("a")), &[]), None);
        assert_eq!(name(review(true, None, Some("")), &[]), None);
        assert_eq!(name(review(true, None, None), &[]), None);
        assert_eq!(name(TokenReview::default(), &[]), None);
    }

    #[test]
    fn the_rule_can_be_pasted() {
        assert_eq!(
            Right::Exec.rule(),
            "apiGroups: [glovebox.dev], resources: [agentsandboxes/exec], verbs: [create]"
        );
        assert_eq!(
            Right::Look.rule(),
            "apiGroups: [glovebox.dev], resources: [agentsandboxes], verbs: [get]"
        );
        assert_eq!(
            Right::WriteFiles.rule(),
            "apiGroups: [glovebox.dev], resources: [agentsandboxes/files], verbs: [update]"
        );
    }
}
