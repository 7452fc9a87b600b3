//! The API server, as far as it says who somebody is and whether they may.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::http::{Request, Response, header};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

/// How it is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Away {
    #[default]
    No,
    /// It answers after a moment.
    Slow,
    /// Connections are refused.
    Refusing,
    /// It does not answer.
    Silent,
    /// It says that the session may not ask.
    Forbidding,
}

/// What it knows.
#[derive(Default)]
pub(crate) struct Known {
    /// Token, and whom it names for which audience; none is the server's own.
    pub(crate) tokens: BTreeMap<String, (Value, Option<String>)>,
    /// Who is known by a certificate, and their groups.
    pub(crate) certified: BTreeMap<String, Value>,
    /// User, verb, resource, namespace.
    pub(crate) may: BTreeSet<[String; 4]>,
    pub(crate) away: Away,
    /// What is asked for as a log, and what the answer is.
    pub(crate) logs: BTreeMap<String, (u16, String)>,
    /// Every review that was asked for.
    pub(crate) asked: Vec<Value>,
}

/// The server. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Cluster(pub(crate) Arc<Mutex<Known>>);

impl Cluster {
    /// Somebody with a token.
    pub(crate) fn knows(&self, token: &str, name: &str) {
        let user = json!({"username": name, "uid": format!("uid-{name}"), "groups": ["devs"], "extra": {"scopes": ["a", "b"]}});
        self.0.lock().unwrap().tokens.insert(token.into(), (user, None));
    }

    /// Somebody with a certificate.
    pub(crate) fn has_certified(&self, name: &str, groups: &[&str]) {
        self.0.lock().unwrap().certified.insert(name.into(), json!(groups));
    }

    /// They may do this in a namespace.
    pub(crate) fn lets(&self, name: &str, verb: &str, resource: &str, namespace: &str) {
        self.0.lock().unwrap().may.insert([name, verb, resource, namespace].map(ToOwned::to_owned));
    }

    pub(crate) fn is(&self, away: Away) {
        self.0.lock().unwrap().away = away;
    }

    /// How often it was asked for a review of this kind.
    pub(crate) fn asked(&self, kind: &str) -> usize {
        self.0.lock().unwrap().asked.iter().filter(|asked| asked["kind"] == kind).count()
    }

    pub(crate) fn client(&self) -> Client {
        let cluster = self.clone();
        Client::new(service_fn(move |request| cluster.clone().serve(request)), "default")
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let path = request.uri().path().to_owned();
        if path.ends_with("/log") {
            let asked = request.uri().to_string();
            let known = self.0.lock().unwrap();
            let (code, text) =
                known.logs.get(&asked).unwrap_or_else(|| panic!("{asked} is no log that is asked for"));
            if *code != 200 {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "R", "message": text, "code": code});
                return Ok(respond(*code, &status));
            }
            return Ok(Response::new(Body::from(text.clone().into_bytes())));
        }
        let review: Value = serde_json::from_slice(&request.into_body().collect_bytes().await?)?;
        let away = self.0.lock().unwrap().away;
        match away {
            Away::No => {}
            Away::Slow => tokio::time::sleep(Duration::from_millis(50)).await,
            Away::Refusing => return Err("connection refused".into()),
            Away::Silent => std::future::pending().await,
            Away::Forbidding => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": review.to_string(), "code": 403});
                return Ok(respond(403, &status));
            }
        }
        let mut known = self.0.lock().unwrap();
        let status = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => known.who(&review["spec"]),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => known.may(&review["spec"]),
            other => panic!("{other} is nothing that a session asks for"),
        };
        known.asked.push(review.clone());
        let mut answer = review;
        answer["status"] = status;
        Ok(respond(201, &answer))
    }
}

impl Known {
    fn who(&self, spec: &Value) -> Value {
        let audiences = spec["audiences"].as_array().cloned().unwrap_or_default();
        match self.tokens.get(spec["token"].as_str().unwrap()) {
            Some((user, None)) if audiences.is_empty() => json!({"authenticated": true, "user": user}),
            Some((user, Some(audience))) if audiences.contains(&json!(audience)) => {
                json!({"authenticated": true, "user": user, "audiences": [audience]})
            }
            _ => json!({"authenticated": false, "error": "no good"}),
        }
    }

    fn may(&self, spec: &Value) -> Value {
        let what = &spec["resourceAttributes"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&spec["user"]);
        // All that makes somebody who they are is handed on.
        if let Some(groups) = self.certified.get(&name) {
            assert_eq!((&spec["groups"], spec.get("uid"), spec.get("extra")), (groups, None, None));
        } else {
            assert_eq!(spec["uid"], json!(format!("uid-{name}")));
            assert_eq!((&spec["groups"], &spec["extra"]["scopes"]), (&json!(["devs"]), &json!(["a", "b"])));
        }
        assert_eq!(what["group"], "glovebox.dev");
        assert!(!text(&what["name"]).is_empty());
        let resource = match what["subresource"].as_str() {
            Some(below) => format!("{}/{below}", text(&what["resource"])),
            None => text(&what["resource"]),
        };
        let allowed = self.may.contains(&[name, text(&what["verb"]), resource, text(&what["namespace"])]);
        json!({"allowed": allowed})
    }
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    let body = Body::from(serde_json::to_vec(body).unwrap());
    Response::builder().status(code).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}
