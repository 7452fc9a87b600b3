//! The API server: requests of a `kube::Client` in, answers and faults out, and a record of all of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{Method, Request, Response, header};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::{BoxError, service_fn};

use super::{
    admission,
    calls::{Call, Verb},
    clock::Clock,
    faults::{self, Fault},
    invariants::Invariants,
    kinds::Target,
    store::{Key, Refused, Store},
};

/// An API server in memory. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Mutex<Inner>>,
    death: Arc<Notify>,
}

/// What the server holds.
pub struct Inner {
    /// Objects.
    pub store: Store,
    /// What was asked.
    pub calls: Vec<Call>,
    /// What goes wrong.
    pub faults: faults::Plan,
    /// What must hold at every call.
    pub invariants: Invariants,
}

/// One request, read.
struct Asked {
    verb: Verb,
    target: Target,
    query: String,
    kind_of_patch: String,
    metadata_only: bool,
    body: Value,
}

type Answer = Result<Value, Refused>;

impl Server {
    /// An empty server.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let inner = Inner {
            store: Store::new(clock),
            calls: Vec::new(),
            faults: faults::Plan::default(),
            invariants: Invariants::default(),
        };
        Self { inner: Arc::new(Mutex::new(inner)), death: Arc::default() }
    }

    /// What it holds. A test that failed while it looked leaves it as it is.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of this server.
    #[must_use]
    pub fn client(&self) -> Client {
        let server = self.clone();
        Client::new(service_fn(move |request| server.clone().serve(request)), "default")
    }

    /// Returns when the controller has to die.
    pub async fn death(&self) {
        self.death.notified().await;
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        // Others that wait for an answer go on meanwhile.
        tokio::task::yield_now().await;
        let asked = read(request).await?;
        let fault = {
            let inner = self.lock();
            inner.faults.at(inner.calls.len())
        };
        let answer = self.lock().answer(&asked, fault);
        match fault {
            None | Some(Fault::Conflict | Fault::Throttled | Fault::ServerError) => Ok(respond(answer)),
            Some(Fault::Unsent | Fault::ReplyLost) => Err("connection reset by peer".into()),
            Some(Fault::Silence | Fault::SilentlyDone) => std::future::pending().await,
            Some(Fault::DeathBefore | Fault::DeathAfter) => {
                self.death.notify_one();
                std::future::pending().await
            }
        }
    }
}

impl Inner {
    /// Carries out a request unless the fault prevents it, and records it.
    fn answer(&mut self, asked: &Asked, fault: Option<Fault>) -> Answer {
        let key = Key {
            kind: asked.target.kind,
            namespace: asked.target.namespace.clone(),
            name: asked.target.name.clone(),
        };
        let before = self.store.get(&key).cloned();
        let answer = match fault {
            Some(Fault::Conflict) => Err(Refused::conflict(&key, "the object has been modified")),
            Some(Fault::Throttled) => {
                Err(Refused::new(429, "TooManyRequests", "too many requests, try again later"))
            }
            Some(Fault::ServerError) => Err(Refused::new(500, "InternalError", "etcdserver: leader changed")),
            Some(fault) if !fault.is_done() => Err(Refused::new(0, "", "")),
            _ => self.carry_out(asked, &key),
        };
        let code = match &answer {
            Err(refused) => refused.code,
            Ok(_) if asked.verb == Verb::Create => 201,
            Ok(_) => 200,
        };
        let made = asked.verb == Verb::Patch && before.is_none() && answer.is_ok();
        let call = Call { verb: asked.verb, target: asked.target.clone(), code, fault, made };
        self.invariants.check(&self.store, &call, before.as_ref(), answer.as_ref().ok());
        self.calls.push(call);
        answer
    }

    fn carry_out(&mut self, asked: &Asked, key: &Key) -> Answer {
        let subresource = asked.target.subresource.as_str();
        match asked.verb {
            Verb::Get => {
                let object = self.store.get(key).ok_or_else(|| Refused::not_found(key))?;
                Ok(if asked.metadata_only { metadata(object) } else { object.clone() })
            }
            Verb::List => {
                let found = self.store.list(key.kind.kind, &key.namespace).map(|(_, object)| object);
                let items: Vec<Value> = found
                    .map(|object| if asked.metadata_only { metadata(object) } else { object.clone() })
                    .collect();
                let version = self.store.version().to_string();
                Ok(
                    json!({"apiVersion": key.kind.api_version(), "kind": format!("{}List", key.kind.kind), "metadata": {"resourceVersion": version}, "items": items}),
                )
            }
            Verb::Create => {
                let key = Key {
                    name: asked.body["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                    ..key.clone()
                };
                // Admission comes first: a pod whose name is taken can be refused, and is counted, by a quota.
                let mut object = asked.body.clone();
                admission::admit(&mut self.store, &key, &mut object)?;
                self.store.create(&key, object)
            }
            Verb::Patch if asked.kind_of_patch == "application/apply-patch+yaml" => {
                let mut want = asked.body.clone();
                if self.store.get(key).is_none() && subresource.is_empty() {
                    admission::admit(&mut self.store, key, &mut want)?;
                }
                let manager = parameter(&asked.query, "fieldManager")
                    .ok_or_else(|| Refused::new(400, "BadRequest", "fieldManager is required for apply"))?;
                self.store.apply(key, &manager, subresource, &want)
            }
            Verb::Patch => self.store.patch(key, subresource, &asked.body),
            Verb::Delete => {
                let uid = self.store.get(key).map(|object| object["metadata"]["uid"].clone());
                if self.store.delete(key, &asked.body)? {
                    return Ok(
                        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {"name": key.name, "uid": uid}}),
                    );
                }
                Ok(self.store.get(key).cloned().unwrap_or(Value::Null))
            }
        }
    }
}

fn metadata(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
}

async fn read(request: Request<Body>) -> Result<Asked, BoxError> {
    let (parts, body) = request.into_parts();
    let target =
        Target::parse(parts.uri.path()).ok_or_else(|| format!("{} is not served", parts.uri.path()))?;
    let header = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value: &header::HeaderValue| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let verb = match (&parts.method, target.name.is_empty()) {
        (&Method::GET, false) => Verb::Get,
        (&Method::GET, true) => Verb::List,
        (&Method::POST, true) => Verb::Create,
        (&Method::PATCH, false) => Verb::Patch,
        (&Method::DELETE, false) => Verb::Delete,
        (method, _) => return Err(format!("{method} {} is not served", parts.uri.path()).into()),
    };
    let bytes = body.collect_bytes().await?;
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
    let metadata_only = header(header::ACCEPT).contains("as=PartialObjectMetadata");
    Ok(Asked { verb, target, query, kind_of_patch: header(header::CONTENT_TYPE), metadata_only, body })
}

fn parameter(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(ToOwned::to_owned))
}

fn respond(answer: Answer) -> Response<Body> {
    let (code, body) = match answer {
        Ok(object) => (200, object),
        Err(refused) => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": refused.message, "reason": refused.reason, "code": refused.code});
            (refused.code, status)
        }
    };
    let body = Body::from(serde_json::to_vec(&body).unwrap());
    Response::builder().status(code).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}
