//! Owns how a replica of the gateway or the session says when a sandbox was last used, and how the controller asks it: one small
//! request at the port of health and metrics. Must tell nothing but times.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use axum::{
    Router,
    body::Body,
    extract::Path,
    http::{Request, StatusCode, header},
    routing::get,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::net::TcpStream;

/// How long a replica may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer, in bytes: two numbers.
const MOST: usize = 1024;

/// What one replica knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Used {
    /// For how long the replica has been there: of what was before, it knows nothing.
    pub(crate) up_ms: u64,
    /// How long ago the sandbox was used last, by way of this replica; 0 while it is. None: not since it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ago_ms: Option<u64>,
}

/// Milliseconds, as they are told.
#[must_use]
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Answers with what `used` says of the sandbox with a uid, whose pod has an address.
pub(crate) fn routes(used: impl Fn(&str, IpAddr) -> Used + Clone + Send + Sync + 'static) -> Router {
    let answer = move |Path((uid, address)): Path<(String, String)>| async move {
        let address: IpAddr = address.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
        let said = serde_json::to_vec(&used(&uid, address)).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok::<_, StatusCode>(([(header::CONTENT_TYPE, "application/json")], said))
    };
    Router::new().route("/used/{uid}/{address}", get(answer))
}

/// Asks the replica at `replica`.
///
/// # Errors
/// When it does not answer, or says something else.
pub(crate) async fn ask(replica: SocketAddr, uid: &str, address: IpAddr) -> anyhow::Result<Used> {
    request(replica, &format!("/used/{uid}/{address}"), MOST, PATIENCE).await
}

/// What a replica says at a path of its port of health and metrics, in so many bytes and so much time.
///
/// # Errors
/// When it does not answer, or says something else.
pub(crate) async fn request<T: DeserializeOwned>(
    replica: SocketAddr,
    path: &str,
    most: usize,
    patience: Duration,
) -> anyhow::Result<T> {
    let request = Request::get(path)
        .header(header::HOST, replica.to_string())
        .body(Body::empty())
        .context("a path that is none")?;
    let answer = async {
        let stream = TcpStream::connect(replica).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let answered = async {
            let response = sender.send_request(request).await?;
            ensure!(response.status() == StatusCode::OK, "it answered {}", response.status());
            let bytes = axum::body::to_bytes(Body::new(response.into_body()), most).await?;
            Ok(serde_json::from_slice(&bytes)?)
        };
        tokio::pin!(connection);
        tokio::pin!(answered);
        tokio::select! {
            answered = &mut answered => answered,
            // The last bytes may have come with the end.
            ended = &mut connection => { ended?; answered.await }
        }
    };
    tokio::time::timeout(patience, answer).await.context("it did not answer in time")?
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn serve(router: Router) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    #[tokio::test]
    async fn what_is_said_comes_through() {
        let said = Used { up_ms: 5000, ago_ms: Some(0) };
        let never = Used { up_ms: 1, ago_ms: None };
        let replica =
            serve(routes(
                move |uid, address| {
                    if uid == "u-1" && address == IpAddr::from([10, 0, 0, 1]) { said } else { never }
                },
            ))
            .await;
        assert_eq!(ask(replica, "u-1", [10, 0, 0, 1].into()).await.unwrap(), said);
        assert_eq!(ask(replica, "u-2", [10, 0, 0, 1].into()).await.unwrap(), never);
        assert_eq!(ask(replica, "u-1", "2001:db8::1".parse().unwrap()).await.unwrap(), never);
    }

    #[tokio::test]
    async fn what_is_no_answer_is_an_error() {
        let text = |text: &'static str| Router::new().fallback(move || async move { text });
        let long: &'static str = Box::leak(" ".repeat(2 * MOST).into_boxed_str());
        for said in ["", "{}", "null", r#"{"upMs":-1}"#, r#"{"upMs":1,"name":"x"}"#, long] {
            let replica = serve(text(said)).await;
            assert!(
                ask(replica, "u", [10, 0, 0, 1].into()).await.is_err(),
                "{:?}",
                &said[..said.len().min(40)]
            );
        }
        let refused = serve(Router::new()).await;
        assert!(ask(refused, "u", [10, 0, 0, 1].into()).await.is_err());
        assert!(ask(refused, "no uid\r\n", [10, 0, 0, 1].into()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_silent_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let replica = listener.local_addr().unwrap();
        assert!(ask(replica, "u", [10, 0, 0, 1].into()).await.is_err());
    }
}
