//! `/livez`, `/readyz`, `/metrics` of every role.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{Router, http::StatusCode, response::IntoResponse, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Whether the process can do its work, as the probes ask.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<AtomicBool>);

impl Health {
    /// Says whether it can.
    pub fn ready(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }
}

/// Serves until `stop`. `metrics` makes the OpenMetrics text, `more` is what else a role has to say.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    metrics: impl Fn() -> String + Clone + Send + Sync + 'static,
    more: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let ready = move || async move {
        if health.0.load(Ordering::Relaxed) {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not yet\n")
        }
    };
    let render = move || async move {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([("content-type", kind)], metrics()).into_response()
    };
    let app = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(render))
        .merge(more);
    axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await
}
