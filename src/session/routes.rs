//! The paths, in one table: what is served and what the OpenAPI document lists come from the same lines.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::{MethodFilter, on},
};
use rustls::crypto::SecureRandom;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    answer::written,
    body,
    bounds::Bounds,
    directory::Place,
    evidence,
    exec::{self, full},
    files::{self, Files},
    live, logs,
    metrics::Metrics,
    openapi,
    problem::{Problem, Reason},
    request,
    retries::Retries,
    reviews::{Reviewer, Right, User},
    runner::Runner,
    shares::{Share, Shares},
    status,
};

use crate::audit::Recorder;

/// What is done at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// The document of all.
    OpenApi,
    /// Where a sandbox stands.
    Status,
    /// The same as soon as it is as wanted.
    Wait,
    /// Has a command run.
    Exec,
    /// The same, over a WebSocket.
    Live,
    /// What the workload wrote.
    Logs,
    /// Does something with files.
    Files(Files),
}

/// A path and its method.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method, as OpenAPI writes it.
    pub method: &'static str,
    /// The path, with its parameters in braces.
    pub path: &'static str,
    pub(super) endpoint: Endpoint,
}

/// Every path that is served.
pub const ROUTES: &[Route] = &[
    Route { method: "get", path: "/openapi.json", endpoint: Endpoint::OpenApi },
    Route { method: "get", path: "/v1/namespaces/{namespace}/sandboxes/{name}", endpoint: Endpoint::Status },
    Route {
        method: "get",
        path: "/v1/namespaces/{namespace}/sandboxes/{name}/wait",
        endpoint: Endpoint::Wait,
    },
    Route {
        method: "post",
        path: "/v1/namespaces/{namespace}/sandboxes/{name}/exec",
        endpoint: Endpoint::Exec,
    },
    Route {
        method: "get",
        path: "/v1/namespaces/{namespace}/sandboxes/{name}/exec",
        endpoint: Endpoint::Live,
    },
    Route {
        method: "get",
        path: "/v1/namespaces/{namespace}/sandboxes/{name}/logs",
        endpoint: Endpoint::Logs,
    },
    files_at("get", "/v1/namespaces/{namespace}/sandboxes/{name}/files", Files::Read),
    files_at("put", "/v1/namespaces/{namespace}/sandboxes/{name}/files", Files::Write),
    files_at("delete", "/v1/namespaces/{namespace}/sandboxes/{name}/files", Files::Delete),
    files_at("get", "/v1/namespaces/{namespace}/sandboxes/{name}/files/entry", Files::Stat),
    files_at("get", "/v1/namespaces/{namespace}/sandboxes/{name}/files/list", Files::List),
    files_at("get", "/v1/namespaces/{namespace}/sandboxes/{name}/files/archive", Files::Pack),
    files_at("put", "/v1/namespaces/{namespace}/sandboxes/{name}/files/archive", Files::Unpack),
];

const fn files_at(method: &'static str, path: &'static str, files: Files) -> Route {
    Route { method, path, endpoint: Endpoint::Files(files) }
}

/// What requests need of the process.
pub(super) struct App {
    /// The API server.
    pub(super) client: kube::Client,
    pub(super) reviewer: Reviewer,
    pub(super) runner: Arc<Runner>,
    /// Bytes of output that this replica hands over of one call, whatever the sandbox says.
    pub(super) max_output: u64,
    /// Most bytes that a file operation carries.
    pub(super) max_transfer: u64,
    pub(super) retries: Arc<Retries>,
    /// Calls that run.
    pub(super) calls: Arc<Shares>,
    /// Bytes of bodies and output.
    pub(super) buffered: Arc<Shares>,
    /// Requests that wait for a sandbox.
    pub(super) waits: Arc<Shares>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) random: &'static dyn SecureRandom,
    /// Calls that nobody's request holds.
    pub(super) tasks: TaskTracker,
    /// Where it is said what was done.
    pub(super) recorder: Recorder,
    /// Nothing new begins.
    pub(super) stop: CancellationToken,
}

impl App {
    /// Whether somebody may do this. That they may not is on the record.
    pub(super) async fn may(&self, user: &User, right: Right, at: &Place) -> Result<(), Problem> {
        let allowed = self.reviewer.may(user, right, &at.0, &at.1).await;
        allowed.inspect_err(|problem| evidence::denied(self, at, user, problem))
    }

    /// What a call of this sandbox is held to.
    pub(super) fn bounds(&self, at: &Place) -> Bounds {
        self.runner.directory.bounds(at).within(self.max_output)
    }

    /// Whether something may begin.
    pub(super) fn is_open(&self) -> Result<(), Problem> {
        if self.stop.is_cancelled() { Err(Self::shutting_down()) } else { Ok(()) }
    }

    pub(super) fn shutting_down() -> Problem {
        Problem::new(Reason::ShuttingDown, "this replica is about to end; another one takes requests")
    }

    /// Room for one more call, and for so many bytes of it.
    pub(super) fn room(&self, namespace: &str, bytes: u64) -> Result<[Share; 2], Problem> {
        let call = self.calls.enter(namespace, 1).ok_or_else(|| full("calls"))?;
        let held = self.buffered.enter(namespace, bytes);
        Ok([call, held.ok_or_else(|| full("bytes of bodies and output"))?])
    }

    /// A name for a call that no other has, in any replica.
    pub(super) fn new_id(&self) -> Result<String, Problem> {
        let mut bytes = [0; 16];
        self.random
            .fill(&mut bytes)
            .map_err(|_| Problem::new(Reason::Internal, "there is no randomness; report this"))?;
        Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
    }
}

/// Everything that is served.
pub(super) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for Route { method, path, endpoint } in ROUTES {
        let filter = match *method {
            "post" => MethodFilter::POST,
            "put" => MethodFilter::PUT,
            "delete" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        let app = app.clone();
        let handler = move |request: Request| async move { serve(&app, *endpoint, request).await };
        router = router.route(path, on(filter, handler));
    }
    let (no_path, no_method) = (app.clone(), app.clone());
    router
        .fallback(|request: Request| async move {
            let message = "there is no such path; /openapi.json lists those that there are";
            unread(request.into_body(), refuse(&no_path, Problem::new(Reason::NoSuchPath, message))).await
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let message = "this path takes another method; /openapi.json says which";
            unread(request.into_body(), refuse(&no_method, Problem::new(Reason::MethodNotAllowed, message)))
                .await
        })
}

async fn serve(app: &Arc<App>, endpoint: Endpoint, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let answer = match (endpoint, place(parts.uri.path())) {
        (Endpoint::Exec, Ok(at)) => exec::exec(app, at, &parts, body).await,
        (Endpoint::Files(what), Ok(at)) => files::serve(app, what, at, &parts, body).await,
        (Endpoint::OpenApi, _) => unread(body, Ok(written(openapi::bytes()))).await,
        (Endpoint::Live, Ok(at)) => unread(body, live::serve(app, at, &mut parts).await).await,
        (Endpoint::Logs, Ok(at)) => unread(body, logs::serve(app, &at, &parts).await).await,
        (_, Err(problem)) => unread(body, Err(problem)).await,
        (Endpoint::Wait, Ok(at)) => {
            let query = parts.uri.query().unwrap_or_default();
            unread(body, status::wait(app, &at, &parts, query).await).await
        }
        (Endpoint::Status, Ok(at)) => unread(body, status::status(app, &at, &parts).await).await,
    };
    answer.unwrap_or_else(|problem| refuse(app, problem))
}

/// An answer to whoever sent a body that nobody wants.
async fn unread<T>(body: Body, answer: T) -> T {
    body::throw_away(body.into_data_stream(), body::TO_ANYBODY).await;
    answer
}

fn refuse(app: &App, problem: Problem) -> Response {
    app.metrics.refused(problem.reason);
    problem.into_response()
}

/// Whose path it is. No name needs an escape, so that none is read.
fn place(path: &str) -> Result<Place, Problem> {
    let mut parts = path.split('/').skip(3);
    let (namespace, name) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
    request::name("namespace", namespace)?;
    request::name("name", name)?;
    Ok((namespace.into(), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_sandbox() {
        let (namespace, name) = place("/v1/namespaces/team-a/sandboxes/review.42/exec").unwrap();
        assert_eq!((&*namespace, &*name), ("team-a", "review.42"));
        for path in [
            "/v1/namespaces//sandboxes/s",
            "/v1/namespaces/a/sandboxes/",
            "/v1/namespaces/a/sandboxes/%2e%2e",
            "/v1/namespaces/a%2fb/sandboxes/s",
            "/v1/namespaces/A/sandboxes/s",
        ] {
            assert_eq!(place(path).unwrap_err().reason, Reason::InvalidRequest, "{path}");
        }
    }
}
